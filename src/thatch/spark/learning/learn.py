"""What events and subscriptions look like together, over DataFrames: samples, and all of them counted by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thatch.errors import check_on_error
from thatch.learning.regions import Places, one_sided_regions
from thatch.learning.sketch import BOXES, CELLS, EVENTS, Sketch, check_cells
from thatch.reports.learn import Learned, cells_table, regions_table, selectivity_table
from thatch.space.event_columns import ID, event_columns
from thatch.space.schemas import ColumnPath
from thatch.space.space import Space
from thatch.spark.encoded import Source, source_of, with_cuts
from thatch.spark.failures import map_batches, translated_errors
from thatch.spark.inferred import space_of
from thatch.spark.learning.places import counted_cells, counted_regions
from thatch.spark.learning.similar import alike, phi
from thatch.spark.matching.match import Job, wrong_clauses
from thatch.spark.reducing.decide import SampleBoxes, sample_of
from thatch.spark.reducing.merged import counted_events, sampled_events
from thatch.spark.tables import SubscriptionFrame, check_time_zone, fields, is_wrong_event, session_of, spark_type
from thatch.spark.text import name_sql, text_sql


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
    events: DataFrame,
    subscriptions: DataFrame,
    space: Space | None = None,
    *,
    on_error: str = "raise",
    cells: int = CELLS,
) -> Learned[DataFrame]:
    """What events and subscriptions look like. Matches are counted over all events when somebody looks at them, regions
    over all events now; the rest is of a sample of 10,000 events. `cells` is how many each attribute is cut into.
    Without a space, it is taken from the schema of the events, as `match` does."""
    check_on_error(on_error)
    check_cells(cells)
    session, skip = session_of(subscriptions), on_error == "skip"
    with translated_errors():
        if space is None:
            space = space_of(events, subscriptions)
        check_time_zone(session, space)
        if skip:
            events, subscriptions = _usable(events, subscriptions, space)
        known = SubscriptionFrame.of(subscriptions, space)
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
        sketch = Sketch.of(own, (low, high), points, lambda name: table.column(name).to_pylist(), cells)
        job = Job(events, subscriptions, space, "auto", on_error, None)
        matched = job.result().groupBy(F.col(ID).alias("id"))
        matches = frame.select("id").join(matched.agg(F.count(F.lit(1)).alias("matches")), "id", "left")
        matches = matches.na.fill(0, ["matches"]).withColumn("share", F.col("matches") / F.lit(max(total, 1)))
        sample = _sample_frame(session, table, space)
        pairs = job.for_events(sample).result().selectExpr("__event AS event", f"{ID} AS id").localCheckpoint()
        wanted = pairs.select("event").distinct().toArrow().column(0).to_numpy()
        alone = np.delete(sketch.cells, wanted)  # the cells of sampled events that nobody wants
        counted, meeting = counted_cells(events, frame, numbered, sketch.grid, skip)
        by_cell = counted, sketch.grid.count_cells(sketch.cells), sketch.grid.count_cells(alone)
        count_in = partial(counted_regions, frame, numbered, sketch.grid)
        regions = one_sided_regions(sketch.grid, own, by_cell, meeting, count_in)
    return Learned(
        space,
        total,
        count,
        sketch.attributes,
        sketch.boundaries,
        session.createDataFrame(selectivity_table(sketch)),
        session.createDataFrame(cells_table(sketch)),
        matches,
        alike(pairs),
        session.createDataFrame(regions_table(regions)),
        Places.of(sketch.grid, own, *by_cell, meeting),
        partial(_phi, pairs, frame, numbered, kind),
    )


def _usable(events: DataFrame, subscriptions: DataFrame, space: Space) -> tuple[DataFrame, DataFrame]:
    """Events and subscriptions without those that are wrong."""
    good = events.where(f"NOT {is_wrong_event(event_columns(events.schema, space), space)}")
    known = SubscriptionFrame.of(subscriptions, space)
    if known.where is None:
        return good, subscriptions
    wrong = wrong_clauses(subscriptions, space).select(F.col("id").alias(known.id))
    return good, subscriptions.join(wrong, known.id, "left_anti")


def _phi(pairs: DataFrame, frame: DataFrame, source: Source, id: str) -> DataFrame:
    with translated_errors():
        return phi(pairs, frame, source, id)
