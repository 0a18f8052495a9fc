"""Files of events as DataFrames, in which what is malformed is an error and never NULL.

Text (CSV, JSON) is read as text. The columns of attributes are then cast one by one, so that a value which cannot be
had exactly is known by its row and its attribute; a reader with a schema would make NULL of it, or round it. Records
that have no columns at all (a brace too few, a field too many) come through Spark's column of corrupt records.

CSV has a header in every file, and doubles a quote to escape it. JSON has one object a line. With `multiline`, records
may span lines: line breaks within quotes, a file that is one array.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from thatch.errors import CallerError
from thatch.local.events import MALFORMED, parquet_file
from thatch.local.files import Format, delimited, has_scheme, no_such_file, one_kind
from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, DateAxis, IntAxis, TimestampAxis, TimestampNtzAxis
from thatch.space.decimals import DecimalAxis
from thatch.space.event_columns import event_columns
from thatch.space.floating import FloatingAxis
from thatch.space.space import Space
from thatch.spark.payload import EventProblem, raised_text
from thatch.spark.tables import spark_type, wrong_event
from thatch.spark.text import column_sql, name_sql

RECORD, READ, PROBLEM = "__record", "__read", "__problem"
NO_VALUE = "\x01"  # what Spark holds an empty field for; if that were empty, too, "" would be NULL
VALUE_SHOWN, EVENT_SHOWN = 80, 400  # characters of a bad value and of its event that an error repeats


class MalformedRecord(CallerError):
    """A line of text is not a record of its table."""


def scan(session: SparkSession, paths: Sequence[str], format: Format, as_text: Callable[[str], bool]) -> DataFrame:
    """Files as they are. Of text, columns that are asked for are strings, and one more has malformed records."""
    kind, found, format = one_kind(paths, format), [_located(path) for path in paths], delimited(paths, format)
    if kind == "parquet":
        for path in paths:
            if os.path.isfile(path):
                parquet_file(path)  # which says what is wrong with one that is none
        return session.read.parquet(*found)
    options: dict[str, Any] = {"multiLine": format.multiline, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": RECORD}
    if kind == "csv":
        # Without pruning, a record with a field too many is noticed whatever is asked for; without enforcing, a header
        # that differs from the first one is an error and not ignored.
        options |= {"header": True, "sep": format.delimiter, "escape": '"', "columnPruning": False}
        options["enforceSchema"] = False
        options["nullValue"] = NO_VALUE
    first = getattr(session.read.options(**options), kind)(found).schema
    fields = [
        StructField(each.name, StringType()) if kind == "csv" or as_text(each.name) else each
        for each in first.fields
        if each.name != RECORD
    ]
    if not fields:
        raise CallerError(f"{', '.join(paths)}: has no columns")
    schema = StructType([*fields, StructField(RECORD, StringType())])
    frame: DataFrame = getattr(session.read.schema(schema).options(**options), kind)(found)
    return frame


def _path(uri: str) -> str:
    """A path as a person would write it."""
    return unquote(urlparse(uri).path) if uri.startswith("file:") else uri


def _located(path: str) -> str:
    """A path for Spark. A file that exists is meant, even if its name looks like a pattern."""
    if has_scheme(path):
        return path
    if os.path.exists(path):
        return re.sub(r"([\[\]{}*?\\])", r"\\\1", os.path.abspath(path))
    if not glob.has_magic(path) and "{" not in path:
        raise CallerError(no_such_file(path))
    return os.path.abspath(path)  # the JVM may have another working directory


# Values


class TextValue(NamedTuple):
    """A text as a value of its attribute, and why it cannot be one: a value or a problem is NULL, or both are."""

    value: Column
    problem: Column
    raised: Column  # the problem, as the text of an error that is raised for it


def value_of_text(column: str, attribute: Attribute) -> TextValue:
    text, kind, axis = F.col(name_sql(column)), spark_type(attribute), attribute.axis
    value = text.try_cast(kind)
    rules = [(text.isNotNull() & value.isNull(), f" is not {_one(attribute)}")]
    if isinstance(axis, FloatingAxis):
        infinite = F.abs(value) == float("inf")
        rules.append((infinite & ~F.lower(text).contains("inf"), f" is beyond all {axis.sql}s"))
    elif isinstance(axis, DecimalAxis):  # which the cast would round
        rules.append((_places(text) > axis.scale, f" has more than the {axis.scale} decimal places of {axis.sql}"))
    elif isinstance(axis, TimestampAxis | TimestampNtzAxis):
        # Spark would take a time without a date to be of today, and leave out a zone where none belongs.
        rules.append((~text.rlike(r"^\s*[+-]?\d{4}"), f" is not {_one(attribute)}"))
        if isinstance(axis, TimestampNtzAxis):
            rules.append(
                (text.rlike(r":\d{1,2}(\.\d*)? ?[A-Za-z+-]"), " has a time zone, which a timestamp_ntz has not")
            )
    problem = raised = F.lit(None).cast("string")
    source = column_sql(column)
    seen = f"substring({source}, 1, {VALUE_SHOWN})"
    for broken, rule in reversed(rules):
        own = EventProblem(attribute.name, rule.lstrip(), "string", source, "'", seen)
        problem = F.when(broken, F.expr(own.message)).otherwise(problem)
        raised = F.when(broken, F.expr(own.carried)).otherwise(raised)
    return TextValue(value, problem, raised)


def _places(text: Column) -> Column:
    """How many decimal places a number needs that is written like -1.50e3: zeros at the end of its digits do not count.
    NULL for zero."""
    whole, fraction, exponent = (
        F.regexp_extract(text, r"^\s*[+-]?(\d*)\.?(\d*)(?:[eE]([+-]?\d+))?", group) for group in (1, 2, 3)
    )
    digits = F.concat(whole, fraction)
    zeros = F.length(digits) - F.length(F.regexp_replace(digits, "0+$", ""))
    power = F.coalesce(exponent.try_cast("int"), F.lit(0))
    return F.when(zeros < F.length(digits), F.length(fraction) - zeros - power)


def _one(attribute: Attribute) -> str:
    axis = attribute.axis
    examples = {
        BoolAxis: "a bool like true",
        IntAxis: "an int of 64 bits",
        DateAxis: "a date like 2020-02-29",
        TimestampAxis: "a timestamp like 2020-02-29 13:45:00",
        TimestampNtzAxis: "a timestamp like 2020-02-29 13:45:00",
    }
    return examples.get(type(axis), f"a {axis.sql}")


# Events


class Events:
    """Events in files: those that can be used, and the others."""

    def __init__(self, session: SparkSession, paths: Sequence[str], space: Space, format: Format) -> None:
        self.space = space
        self.read = scan(session, paths, format, lambda name: self._attribute(name) is not None)
        self.is_text = RECORD in self.read.columns
        self.names = [name for name in self.read.columns if name != RECORD]
        self._wide = self._with_problems()
        # Reported before anything is read: columns that are missing, or that no attribute can hold.
        self.columns = event_columns(self._wide.select(*map(name_sql, self.names)).schema, space)

    def _attribute(self, name: str) -> Attribute | None:
        """The attribute that a column is, not only has."""
        index = self.space.index(name)
        found = None if index is None else self.space.attributes[index]
        return found if found is not None and len(found.path) == 1 else None

    def _with_problems(self, *extra: Column, raised: bool = False) -> DataFrame:
        """The columns as values, all of them as they were read, and what is wrong with a text: for people, or as the
        text of an error that is raised for it."""
        values, problems = [], [F.lit(None).cast("string")]
        if self.is_text:
            malformed = raised_text(MalformedRecord(MALFORMED)) if raised else MALFORMED
            problems.append(F.when(F.col(RECORD).isNotNull(), F.lit(malformed)))
        for name in self.names:
            attribute, value = self._attribute(name), F.col(name_sql(name))
            if attribute is not None and self.is_text:
                text = value_of_text(name, attribute)
                value = text.value
                problems.append(text.raised if raised else text.problem)
            elif attribute is not None and self._is_local_time(name, attribute):
                value = value.cast("timestamp")
            values.append(value.alias(name))
        read = F.struct(*[F.col(name_sql(name)) for name in self.names])
        return self.read.select(read.alias(READ), F.coalesce(*problems).alias(PROBLEM), *extra, *values)

    def _is_local_time(self, name: str, attribute: Attribute) -> bool:
        """A timestamp without a zone is in the space's, which is the session's."""
        is_ntz = self.read.schema[name].dataType.typeName() == "timestamp_ntz"
        return is_ntz and isinstance(attribute.axis, TimestampAxis)

    def usable(self, skip: bool) -> DataFrame:
        """What is matched. Malformed text is left out with `skip`, or else ends the job. Parquet is left as it is, so
        that it can be read next to the index."""
        if not self.is_text:
            pairs = [
                (path[0], a) for path, a in zip(self.columns, self.space.attributes, strict=True) if len(path) == 1
            ]
            plain = not any(self._is_local_time(name, attribute) for name, attribute in pairs)
            return self.read if plain else self._wide.drop(READ, PROBLEM)
        if skip:
            return self._wide.where(F.col(PROBLEM).isNull()).drop(READ, PROBLEM)
        guarded = self.columns[0][0]  # each strategy looks at every attribute
        kind, wide = self._wide.schema[guarded].dataType, self._with_problems(raised=True)
        value = F.when(F.col(PROBLEM).isNotNull(), F.raise_error(F.col(PROBLEM)).cast(kind))
        value = value.otherwise(F.col(name_sql(guarded)))
        return wide.select(*[value.alias(n) if n == guarded else F.col(name_sql(n)) for n in self.names])

    def judged(self, *extra: Column) -> DataFrame:
        """All events as they were read, with what is wrong with each in a column `error`, NULL if nothing is; of text
        also the record, if that is malformed."""
        if self.is_text:
            extra = (F.col(RECORD).alias(self.record_name), *extra)
        frame = self._with_problems(*extra)
        error = F.expr(f"coalesce({PROBLEM}, {wrong_event(self.columns, self.space)}) AS {self.error_name}")
        added = [name for name in frame.columns[2:] if name not in self.names]
        return frame.select(f"{READ}.*", error, *added)

    @property
    def error_name(self) -> str:
        return self._free("error")

    @property
    def record_name(self) -> str:
        return self._free("record")

    def _free(self, name: str) -> str:
        taken = {each.lower() for each in self.names}
        return name if name not in taken else f"thatch_{name}"

    def first_bad(self, count: int) -> list[str]:
        """Where some bad events are, what is wrong with them, and what they are."""
        row = F.lit(None).cast("bigint") if self.is_text else F.col("_metadata.row_index")
        judged = self.judged(F.col("_metadata.file_path").alias("__file"), row.alias("__row"))
        text = F.to_json(F.struct(*[F.col(name_sql(name)) for name in self.names]))
        if self.is_text:
            text = F.coalesce(F.col(self.record_name), text)
        bad = judged.where(F.col(self.error_name).isNotNull()).select("__file", "__row", self.error_name, text)
        return [
            f"{_path(file)}{'' if place is None else f', row {place}'}: {error}\n    {event[:EVENT_SHOWN]}"
            for file, place, error, event in bad.take(count)
        ]
