"""Files of rules as DataFrames of subscriptions, with the place of each rule and its further columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from thatch.cli.arguments import check_rules
from thatch.cli.spark_jobs.inputs import PROBLEM, RECORD, VALUE_SHOWN, scan, value_of_text
from thatch.errors import CallerError, shown
from thatch.local.documents import as_text
from thatch.local.files import Format, files_in, has_scheme, kind_of, one_kind
from thatch.local.rule_files import STDIN, rule_kind, rules_in
from thatch.local.subscriptions import (
    SubscriptionRows,
    WrongClause,
    joined,
    rows_of_rules,
    typed_bounds,
    without_rules,
    wrong_table,
)
from thatch.space.attribute import Attribute
from thatch.space.event_columns import bound_names, detail_names
from thatch.space.schemas import ColumnPath
from thatch.space.space import Space
from thatch.spark.inferred import paths_of
from thatch.spark.tables import session_of
from thatch.spark.text import name_sql

BYTES_MAX = 2**30  # of a table of rules that is read here; a larger one is read by Spark


class RuleFiles:
    """Files of rules. Local ones are read here, which knows the line of each rule; Spark reads the others, and those
    that are too large."""

    def __init__(self, session: SparkSession, paths: Sequence[str], format: Format) -> None:
        self.session, self.format = session, format
        self.remote = [path for path in paths if _is_for_spark(path)]
        files = [path for path in paths if path not in self.remote]
        local = [rows_of_rules(rules_in(path, format)) for path in files]
        empty, has_rules = without_rules(files, local)
        check_rules(empty, has_rules or bool(self.remote))
        self.rows = joined(local) if local else None

    def paths(self, events: DataFrame, time_zone: str) -> set[ColumnPath]:
        """The columns of the events that rules mention, or have bounds for."""
        found = set() if self.rows is None else self.rows.paths(events.schema, time_zone)
        for path in self.remote:
            found |= paths_of(events, scan(self.session, [path], self._format(path), lambda name: True))
        return found

    def _format(self, path: str) -> Format:
        return Format(kind_of(path) or self.format.kind, self.format.delimiter, self.format.multiline)

    def read(self, space: Space) -> SubscriptionFiles:
        """Subscriptions with `id` and `where`, or `id` and bounds."""
        frames, malformed, details = [], [], None
        if self.rows is not None:
            table, wrong = _of_rows(self.rows, space)
            frames.append(self.session.createDataFrame(table))
            if wrong:
                malformed.append(self.session.createDataFrame(wrong_table(wrong)))
            details = self.rows.details
        for path in self.remote:
            frame, bad = _table(self.session, path, space, self._format(path))
            frames.append(frame)
            if bad is not None:
                malformed.append(bad)
        if len({"where" in frame.columns for frame in frames}) > 1:
            raise CallerError("some of the --where files have clauses, others columns of bounds: match them one by one")
        if len({frame.schema["id"].dataType.typeName() == "string" for frame in frames}) > 1:
            frames = [frame.withColumn("id", F.col("id").cast("string")) for frame in frames]
        whole = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        known = None
        if details is not None and self.rows is not None:
            known = self.session.createDataFrame(detail_table(self.rows.ids, details))
        wrong_rows = reduce(DataFrame.union, malformed) if malformed else None
        return SubscriptionFiles(whole, wrong_rows, self.rows, known)


def _is_for_spark(path: str) -> bool:
    if has_scheme(path):
        return True
    if path == STDIN or rule_kind(path, Format("parquet")) in ("text", "yaml", "toml"):
        return False
    try:
        return sum(map(os.path.getsize, files_in([path]))) > BYTES_MAX
    except CallerError:
        return False  # the reader says what is wrong with it


def _of_rows(rows: SubscriptionRows, space: Space) -> tuple[pa.Table, list[WrongClause]]:
    """A table for Spark, and the rows that cannot be read."""
    if rows.clauses is not None:
        return pa.table({"id": rows.ids, "where": pa.array(rows.clauses, pa.string())}), list(rows.wrong)
    bounds = typed_bounds(rows, space)
    columns = {"id": rows.ids}
    for name, index in bounds.names.items():
        is_low = name.lower() in bound_names("low", space.attributes[index].name)
        columns[name.lower()] = (bounds.low if is_low else bounds.high)[index]
    kept = [row for row in range(len(rows.ids)) if row not in bounds.wrong]
    return pa.table(columns).take(pa.array(kept, pa.int64())), [*rows.wrong, *bounds.wrong.values()]


def detail_table(ids: pa.Array, details: pa.Table) -> pa.Table:
    """Ids with the further columns of rules; what Spark has no type for is text."""
    columns = {"id": ids}
    for name, column in zip(details.schema.names, details.columns, strict=True):
        try:
            from_arrow_type(column.type)
        except PySparkException:
            column = pa.array([as_text(value) for value in column.to_pylist()], pa.string())
        columns[name] = column
    return pa.table(columns)


def inferred_space(
    session: SparkSession, events: Sequence[str], rules: RuleFiles, time_zone: str, on_error: str
) -> Space:
    """The space that events in files have, narrowed to what subscriptions mention."""
    if not events:
        raise CallerError(
            "there is neither a space nor events whose schema it could be taken from: give one of them, --space or "
            "--events with a Parquet file"
        )
    if one_kind(events, rules.format) != "parquet":
        raise CallerError("CSV and JSON have no types: declare the space of the events with --space")
    frame = scan(session, events, rules.format, lambda name: False)
    return Space.of_columns(frame.schema, rules.paths(frame, time_zone), time_zone, on_error)


@dataclass(frozen=True)
class SubscriptionFiles:
    """Subscriptions in files: rows that can be read, and what is wrong with the others."""

    frame: DataFrame
    malformed: DataFrame | None  # id, where, line, column, error, place; None if there can be none
    rows: SubscriptionRows | None = None  # those that were read here
    details: DataFrame | None = None  # id, and what else is known of them

    def with_details(self, result: DataFrame, id: str) -> DataFrame:
        """A result with the further columns of the subscriptions that its ids name."""
        if self.details is None:
            return result
        names = [name for name in self.details.columns if name != "id"]
        columns = [F.col("id").alias("__thatch_id")]
        columns += [
            F.col(name_sql(name)).alias(given)
            for name, given in zip(names, detail_names(names, result.columns), strict=True)
        ]
        known = self.details.select(*columns)
        joined = result.join(known, F.col(name_sql(id)) == F.col("__thatch_id"), "left")
        return joined.drop("__thatch_id")

    def placed(self, wrong: DataFrame) -> DataFrame:
        """Subscriptions that cannot be used, with a column `place`: where they stand, if that is known."""
        rows = self.rows
        if rows is None or rows.places is None:
            return wrong.withColumn("place", F.lit(None).cast("string"))
        table = wrong.toArrow()
        by_id = {str(id): row for row, id in enumerate(rows.ids.to_pylist())}
        known = [by_id.get(id) for id in table.column("id").to_pylist()]
        found = rows.places([row for row in known if row is not None])
        texts = iter(found)
        places = [None if row is None else next(texts) for row in known]
        placed = table.append_column("place", pa.array(places, pa.string()))
        return session_of(wrong).createDataFrame(
            placed, StructType([*wrong.schema, StructField("place", StringType())])
        )


def _table(session: SparkSession, path: str, space: Space, own: Format) -> tuple[DataFrame, DataFrame | None]:
    bounds = {
        name: attribute for attribute in space for side in ("low", "high") for name in bound_names(side, attribute.name)
    }
    frame = scan(session, [path], own, lambda name: name.lower() in bounds)
    names = {name.lower(): name for name in frame.columns}
    if "id" not in names:
        raise CallerError(f"{path}: has no column 'id'; its columns are {', '.join(map(shown, frame.columns))}")
    wanted = ["id", *(name for name in names if ("where" not in names and name in bounds) or name == "where")]
    if len(wanted) == 1:
        some = space.attributes[0].name
        raise CallerError(
            f"{path}: has neither a column 'where' of clauses nor columns of bounds like 'low_{some}' and "
            f"'high_{some}'; its columns are {', '.join(map(shown, frame.columns))}"
        )
    columns = {name: F.col(name_sql(names[name])) for name in wanted}
    if RECORD not in frame.columns:
        return frame.select(*[column.alias(name) for name, column in columns.items()]), None
    return _of_text(frame, columns, names, bounds)


def _of_text(
    frame: DataFrame, columns: dict[str, Column], names: Mapping[str, str], bounds: Mapping[str, Attribute]
) -> tuple[DataFrame, DataFrame]:
    malformed = F.concat(F.lit("malformed: "), F.substring(RECORD, 1, VALUE_SHOWN))
    problems = [F.when(F.col(RECORD).isNotNull(), malformed), F.when(columns["id"].isNull(), F.lit("has no id"))]
    for name in columns:
        if name in bounds and name != "id":
            columns[name], problem, _ = value_of_text(names[name], bounds[name])
            problems.append(F.concat(F.lit(f"column {name!r}, "), problem))
    wide = frame.select(F.coalesce(*problems).alias(PROBLEM), *[each.alias(name) for name, each in columns.items()])
    clause = F.col("where") if "where" in columns else F.lit(None).cast("string")
    wrong = wide.where(F.col(PROBLEM).isNotNull()).select(
        F.col("id").cast("string").alias("id"),
        clause.alias("where"),
        F.lit(None).cast("int").alias("line"),
        F.lit(None).cast("int").alias("column"),
        F.col(PROBLEM).alias("error"),
        F.lit(None).cast("string").alias("place"),
    )
    return wide.where(F.col(PROBLEM).isNull()).drop(PROBLEM), wrong
