"""A table of subscriptions on the driver, as an index that is about to be broadcast."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type

from thatch.errors import CallerError, shown
from thatch.matching.index import TreeMatcher, TreeView
from thatch.region.columns import boxes_of_columns, regions_of_boxes
from thatch.space.axis import EnumAxis
from thatch.space.space import Space
from thatch.spark.clauses import PackClauses, Wrong, compiled, unpacked, wrong_clauses
from thatch.spark.failures import map_batches
from thatch.spark.matching.files import plain_scan, read_all
from thatch.spark.tables import SubscriptionFrame
from thatch.spark.text import name_sql
from thatch.where.enum_bounds import within_enum

PARSED_HERE_MAX = 5_000  # clauses: half a second


@dataclass(frozen=True)
class Collected:
    view: TreeView
    ids: pa.Array  # by number
    wrong: list[Wrong]  # clauses that were left out


def collected(subscriptions: SubscriptionFrame, skip: bool) -> Collected:
    """Clauses are parsed on the executors; here they are put together. With `skip`, wrong ones are left out."""
    space = Space.from_json(subscriptions.space.to_json())  # strings are labelled here, not in the caller's space
    found = _bounds(subscriptions, space) if subscriptions.where is None else _clauses(subscriptions, space, skip)
    _check_ids(found.ids)
    return found


def _clauses(subscriptions: SubscriptionFrame, space: Space, skip: bool) -> Collected:
    assert subscriptions.where is not None
    clauses = subscriptions.frame.select(name_sql(subscriptions.id), name_sql(subscriptions.where))
    here = _few_rows(clauses)
    if here is None:
        rows = map_batches(clauses, PackClauses(space), PackClauses.schema).toArrow()
        ids, regions, wrong = unpacked(rows.column("packed").to_pylist(), space)
    else:
        places, regions, wrong = compiled(here, space)
        ids = [here.column(0).take(pa.array(places, pa.int64()))]
    if wrong and not skip:
        raise wrong_clauses(wrong)
    matcher = TreeMatcher(space)
    matcher.add_many(np.arange(len(regions)), regions)
    nothing = pa.array([], to_arrow_type(subscriptions.id_type))
    return Collected(matcher.view(), pa.concat_arrays([nothing, *ids]), wrong)


def _few_rows(clauses: DataFrame) -> pa.RecordBatch | None:
    """Ids and clauses that the driver has already and parses sooner than a job would start; None if there are none."""
    plan = clauses._jdf.queryExecution().optimizedPlan()
    if plan.nodeName() != "LocalRelation" or plan.data().size() > PARSED_HERE_MAX:
        return None
    rows = clauses.collect()  # no job: Spark has them on the driver
    kinds = [to_arrow_type(field.dataType) for field in clauses.schema.fields]
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    return pa.record_batch(columns, names=["id", "where"])


def _bounds(subscriptions: SubscriptionFrame, space: Space) -> Collected:
    columns = [subscriptions.id, *subscriptions.low.values(), *subscriptions.high.values()]
    frame = subscriptions.frame.select(*map(name_sql, columns))
    scan = plain_scan(frame)
    # A Spark job takes a tenth of a second to start; files that the driver can open are read sooner than that.
    table = frame.toArrow() if scan is None or not all(map(os.path.exists, scan.paths)) else read_all(scan)
    enums = [index for index in subscriptions.bounded if isinstance(space.attributes[index].axis, EnumAxis)]
    low, high = (
        {space.attributes[index].name: _column(table, name) for index, name in side.items() if index not in enums}
        for side in (subscriptions.low, subscriptions.high)
    )
    boxes = boxes_of_columns(low, high, table.num_rows, space)
    ids, numbers, matcher = _column(table, subscriptions.id), np.arange(table.num_rows), TreeMatcher(space)
    if enums:
        regions = regions_of_boxes(boxes, space)
        nothing = [None] * table.num_rows
        for index in enums:
            ends = [
                table.column(side[index]).to_pylist() if index in side else nothing
                for side in (subscriptions.low, subscriptions.high)
            ]
            regions = within_enum(regions, index, ends[0], ends[1], space)
        matcher.add_many(numbers, regions)
    elif boxes.full.all():
        matcher.add_many(numbers, (boxes.low, boxes.high))
    else:
        matcher.add_many(numbers[boxes.full], (boxes.low[boxes.full], boxes.high[boxes.full]))
    return Collected(matcher.view(), ids, [])


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _check_ids(ids: pa.Array) -> None:
    if ids.null_count:
        raise_bad_id(None)
    if len(pc.unique(ids)) < len(ids):
        raise_bad_id(next(each["values"].as_py() for each in pc.value_counts(ids) if each["counts"].as_py() > 1))


def raise_bad_id(id: Any) -> NoReturn:
    """No id, or one that there is twice."""
    if id is None:
        raise CallerError("a subscription has no id: the column 'id' holds NULL")
    raise CallerError(f"two subscriptions have the id {shown(id)}: an id is given once")
