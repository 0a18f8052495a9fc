"""What events and subscriptions look like together, and what brokers should know about it.

Which attributes tell subscriptions apart, each on its own and jointly (choice.py); where cells should begin so that
each holds as many events (MICS, 6.3); how often each subscription matches; how alike they are (similar.py); which
places have events and no subscription, and which the reverse (places.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thatch.errors import CallerError, check_on_error, shown
from thatch.grid.choice import choose_attributes
from thatch.grid.grid import ATTRIBUTES, BITS
from thatch.reports.learn import Shown, shown_page
from thatch.reports.places import Places
from thatch.space.arrays import Ints
from thatch.space.attribute import Attribute
from thatch.space.axis import Coordinates, LabelledAxis
from thatch.space.event_columns import ID
from thatch.space.schemas import ColumnPath
from thatch.space.space import Space
from thatch.spark.encoded import source_of, with_cuts
from thatch.spark.failures import map_batches, translated_errors
from thatch.spark.learning.places import places
from thatch.spark.learning.similar import alike, phi
from thatch.spark.matching.match import Job
from thatch.spark.reducing.decide import SampleBoxes, sample_of
from thatch.spark.reducing.merged import counted_events, sampled_events
from thatch.spark.tables import SubscriptionFrame, check_time_zone, fields, session_of, spark_type
from thatch.spark.text import name_sql, text_sql

EVENTS = 10_000  # of the sample
BOXES = 10_000  # subscriptions of the sample
CROSSED = 1_000  # of each, where every event is compared with every box
PAYS = 0.8  # an attribute is indexed if it leaves no more than this share of the candidates


@dataclass(frozen=True)
class Learned:
    """Plain DataFrames; `page` shows them, `hilbert` are options of the cover engine and of a `Grid`."""

    space: Space
    events: int
    subscriptions: int
    attributes: list[str]  # to be indexed, the best first
    boundaries: dict[str, list[Any]]  # where cells begin, by attribute
    selectivity: DataFrame  # attribute, share, bounded, place, left
    cells: DataFrame  # attribute, cell, begins
    matches: DataFrame  # id, matches, share; of all events
    pairs: DataFrame  # one, other, both, either, similarity
    regions: DataFrame  # kind, where, events, sampled, unwanted, subscriptions
    places: Places
    find_phi: Callable[[], DataFrame]

    @cached_property
    def phi(self) -> DataFrame:
        """`id`, `events`, `root`, `phi`; of the sample. Who covers whom is found out when somebody looks at it."""
        with translated_errors():
            return self.find_phi()

    def page(self) -> str:
        """One page of plots, in HTML that needs nothing but itself. Counts all matches."""

        def rows(frame: DataFrame) -> list[dict[str, Any]]:
            return frame.toArrow().to_pylist()

        return shown_page(
            Shown(
                self.events,
                self.subscriptions,
                self.attributes,
                self.boundaries,
                rows(self.selectivity),
                rows(self.matches),
                rows(self.phi),
                rows(self.pairs.orderBy(F.desc("similarity")).limit(20)),
                self.places,
            )
        )

    def hilbert(self, bits: int = BITS) -> dict[str, Any]:
        """Attributes and cells for `SubscriptionTable(space, "hilbert", **learned.hilbert())`. Strings and
        long decimals have no cells of their own here: between values that nobody mentions no cell can begin."""
        room = (1 << bits) - 2
        cells = {}
        for name in self.attributes:
            at = self.space.index(name)
            if at is not None and not isinstance(self.space.attributes[at].axis, LabelledAxis):
                starts = self.boundaries[name]
                step = max(1, math.ceil(len(starts) / room))
                cells[name] = starts[step - 1 :: step]
        return {"attributes": list(self.attributes), "bits": bits, "cells": cells}


def _sample_frame(session: SparkSession, table: pa.Table, space: Space) -> DataFrame:
    """Sampled events as a DataFrame, numbered in `__event`: fields are in their columns again."""
    names = [f"c{at}" for at in range(len(space))]
    types = [f"{name} {spark_type(attribute)}" for name, attribute in zip(names, space.attributes, strict=True)]
    schema = StructType(fields(", ".join([*types, "__event bigint"])))
    numbered = table.append_column("__event", pa.array(np.arange(len(table)))).rename_columns([*names, "__event"])
    paths = [(attribute.path, name) for attribute, name in zip(space.attributes, names, strict=True)]
    return session.createDataFrame(numbered, schema).selectExpr(*_columns_of(paths), "__event")


def _columns_of(paths: Sequence[tuple[ColumnPath, str]]) -> list[str]:
    roots = dict.fromkeys(path[0].lower() for path, _ in paths)
    return [
        f"{_value(own)} AS {name_sql(own[0][0][0])}"
        for root in roots
        if (own := [(path, name) for path, name in paths if path[0].lower() == root])
    ]


def _value(paths: Sequence[tuple[ColumnPath, str]]) -> str:
    """A column, or a struct of columns by the names that follow in their paths."""
    (first, column), *_ = paths
    if len(first) == 1:
        return column
    within = [(path[1:], name) for path, name in paths]
    parts = []
    for field in dict.fromkeys(path[0].lower() for path, _ in within):
        own = [(path, name) for path, name in within if path[0].lower() == field]
        parts += [text_sql(own[0][0][0]), _value(own)]
    return f"named_struct({', '.join(parts)})"


def learn(
    events: DataFrame, subscriptions: DataFrame, space: Space, *, on_error: str = "raise", cells: int = 1 << BITS
) -> Learned:
    """What events and subscriptions look like. Matches are counted over all events when somebody looks at them, regions
    over all events now; the rest is of a sample of 10,000 events. `cells` is how many each attribute is cut into."""
    check_on_error(on_error)
    if not isinstance(cells, int) or cells < 2:
        raise CallerError(f"cells is a number of at least 2, not {shown(cells)}")
    session = session_of(subscriptions)
    check_time_zone(session, space)
    known = SubscriptionFrame.of(subscriptions, space)
    skip = on_error == "skip"
    with translated_errors():
        source, frame = source_of(known, skip)
        numbered = with_cuts(source, frame)
        own = numbered.new_space()  # with the labels of all strings that subscriptions mention
        count, total = frame.count(), counted_events(events)
        table = sampled_events(events, total, space, skip, EVENTS)
        points = np.ascontiguousarray(np.stack(own.encode_batch(table), axis=1))
        some = frame if count <= BOXES else frame.sample(fraction=BOXES / count, seed=1)
        kind = known.id_type.simpleString()
        found = map_batches(some, SampleBoxes(numbered), SampleBoxes.schema(kind)).toArrow()
        low, high = sample_of(found, len(space))[:2]
        order, shares = _selectivity(own, low, high, points)
        boundaries = {a.name: _quantiles(a, table.column(a.name), points[:, at], cells) for at, a in enumerate(own)}
        job = Job(events, subscriptions, space, "auto", on_error, None)
        matched = job.result().groupBy(F.col(ID).alias("id"))
        matches = frame.select("id").join(matched.agg(F.count(F.lit(1)).alias("matches")), "id", "left")
        matches = matches.na.fill(0, ["matches"]).withColumn("share", F.col("matches") / F.lit(max(total, 1)))
        sample = _sample_frame(session, table, space)
        pairs = job.for_events(sample).result().selectExpr("__event AS event", f"{ID} AS id").localCheckpoint()
        best = [row["attribute"] for row in order]
        wanted = set(pairs.select("event").distinct().toArrow().column(0).to_pylist())
        unwanted = np.array([number not in wanted for number in range(len(points))], np.bool_)
        where = places(events, frame, numbered, own, best[:2], boundaries, points, unwanted, skip)
    attributes = [row["attribute"] for row in order if row["indexed"]]
    starts = [
        {"attribute": name, "cell": at, "begins": str(value)}
        for name, own_cells in boundaries.items()
        for at, value in enumerate(own_cells, 1)
    ]
    return Learned(
        space,
        total,
        count,
        attributes or best[:1],
        boundaries,
        session.createDataFrame(
            _rows(order, shares), "attribute string, share double, bounded double, place int, left double"
        ),
        session.createDataFrame(starts, "attribute string, cell int, begins string"),
        matches,
        alike(pairs),
        session.createDataFrame(where.rows(), Places.schema),
        where,
        partial(phi, pairs, frame, numbered, kind),
    )


def _selectivity(
    space: Space, low: Ints, high: Ints, points: Ints
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Attributes in the order in which to index them, with the share of pairs of a box and an event that are left; and
    of each attribute the share that it leaves on its own, and the share of boxes that bound it."""
    draw = np.random.default_rng(0)
    names = [attribute.name for attribute in space]
    boxes, events = draw.permutation(len(low))[:CROSSED], draw.permutation(len(points))[:CROSSED]
    if not len(boxes) or not len(events):
        nothing = [{"attribute": name, "left": 1.0, "indexed": False} for name in names]
        return nothing, [{"attribute": name, "share": 1.0, "bounded": 0.0} for name in names]
    held = [
        (low[boxes, at] <= points[events, at, None]) & (points[events, at, None] <= high[boxes, at])
        for at in range(len(names))
    ]
    whole = (low == space.low) & (high == space.high)
    shares = [
        {"attribute": name, "share": float(held[at].mean()), "bounded": float(1 - whole[:, at].mean())}
        for at, name in enumerate(names)
    ]
    order, left, before = [], np.ones_like(held[0]), 1.0
    pays = True
    for place, name in enumerate(choose_attributes(space, (low, high), len(names), events=points)):
        left &= held[names.index(name)]
        now = float(left.mean())
        pays = pays and place < ATTRIBUTES and now <= PAYS * before
        order.append({"attribute": name, "left": now, "indexed": pays})
        before = now
    return order, shares


def _rows(order: Sequence[dict[str, Any]], shares: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    places_of = {row["attribute"]: (place, row["left"]) for place, row in enumerate(order, 1)}
    return [(row["attribute"], row["share"], row["bounded"], *places_of[row["attribute"]]) for row in shares]


def _quantiles(attribute: Attribute, column: pa.ChunkedArray, coordinates: Coordinates, cells: int) -> list[Any]:
    """Where cells begin so that each holds as many events; fewer cells where events have few values."""
    if isinstance(attribute.axis, LabelledAxis):  # coordinates stand for gaps, but events are told apart
        values = sorted(value for value in column.to_pylist() if value is not None)
        chosen = [values[len(values) * step // cells] for step in range(1, cells)] if values else []
        return [value for value in dict.fromkeys(chosen) if value != values[0]]
    known = np.sort(coordinates[coordinates >= attribute.first])
    if not len(known):
        return []
    cuts = np.unique(known[len(known) * np.arange(1, cells) // cells])
    return [attribute.axis.decode(int(at)) for at in cuts if at > known[0]]
