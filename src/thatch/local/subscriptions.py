"""Subscriptions in tables, mappings and files: ids with clauses, or with typed columns of bounds.

Bounds are `low_price` and `high_price` (or `price_low`, `price_high`) for an attribute `price`. Both null:
unconstrained. One null: unbounded on that side, and not null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from thatch.errors import BadRows, CallerError, shown
from thatch.local.events import CsvEvents, ParquetEvents
from thatch.local.files import Format, files_in, one_kind
from thatch.local.json_lines import JsonEvents
from thatch.local.sources import table_of
from thatch.local.text_values import values_of
from thatch.region.columns import boxes_of_columns, regions_of_boxes
from thatch.region.region import Region
from thatch.space.axis import EnumAxis
from thatch.space.event_columns import bound_column, bounded_columns
from thatch.space.schemas import ColumnPath
from thatch.space.space import Space
from thatch.space.times import zone_of
from thatch.where.enum_bounds import within_enum
from thatch.where.many import compile_many
from thatch.where.names import names_in

SHOWN = 3  # wrong clauses that an error names


class WrongClause(NamedTuple):
    """A subscription that cannot be used, and why. Lines and columns count from 1."""

    id: Any
    clause: str | None
    line: int | None
    column: int | None
    rule: str

    def __str__(self) -> str:
        place = "" if self.line is None else f", line {self.line}, column {self.column}"
        clause = "" if self.clause is None else f"\n    {shown(self.clause)}"
        return f"subscription {self.id!r}{place}: {self.rule}{clause}"


@dataclass(frozen=True)
class SubscriptionRows:
    """Rows of subscriptions before they have a space."""

    ids: pa.Array
    clauses: list[str | None] | None  # None: there are bounds
    bounds: pa.Table | None = None
    wrong: tuple[WrongClause, ...] = ()  # rows that could not even be read

    @classmethod
    def of_clauses(cls, clauses: Sequence[tuple[str, str]]) -> SubscriptionRows:
        """Of pairs of id and clause."""
        return cls(_ids([id for id, _ in clauses]), [clause for _, clause in clauses])

    def paths(self, schema: Any, time_zone: str) -> set[ColumnPath]:
        """The columns of a table of events that these look at."""
        if self.clauses is not None:
            return names_in((clause for clause in self.clauses if clause is not None), zone_of(time_zone))
        assert self.bounds is not None
        return bounded_columns(schema, {name.lower(): name for name in self.bounds.schema.names})


@dataclass(frozen=True)
class Compiled:
    ids: pa.Array
    regions: list[Region]
    wrong: list[WrongClause]

    def taken(self, places: Sequence[int]) -> Compiled:
        """Some of them."""
        ids = self.ids.take(pa.array(places, pa.int64()))
        return Compiled(ids, [self.regions[place] for place in places], self.wrong)


def subscriptions_of(given: Any, format: Format) -> SubscriptionRows:
    """From a mapping of ids to clauses, a table or frame, or the path of a table in Parquet, CSV or JSON lines."""
    if isinstance(given, SubscriptionRows):
        return given
    if isinstance(given, Mapping):
        return SubscriptionRows(_ids(list(given)), list(given.values()))
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        return _of_file(str(given), format)
    return _of_table(table_of(given, "subscriptions"), "the subscriptions")


def joined(parts: Sequence[SubscriptionRows]) -> SubscriptionRows:
    """The rows of several files. Ids are strings if those of one file are."""
    if len(parts) == 1:
        return parts[0]
    if len({each.clauses is None for each in parts}) > 1:
        raise CallerError("some of the --where files have clauses, others columns of bounds: match them one by one")
    are_strings = any(pa.types.is_string(each.ids.type) for each in parts)
    ids = pa.concat_arrays([each.ids.cast(pa.string() if are_strings else pa.int64()) for each in parts])
    wrong = tuple(one for each in parts for one in each.wrong)
    clauses = None if parts[0].clauses is None else [one for each in parts for one in each.clauses or ()]
    tables = [each.bounds for each in parts if each.bounds is not None]
    bounds = pa.concat_tables(tables, promote_options="default") if clauses is None else None
    return SubscriptionRows(_ids(ids), clauses, bounds, wrong)


def _of_file(path: str, format: Format) -> SubscriptionRows:
    kind, files = one_kind([path], format), files_in([path])
    if kind == "parquet":
        source = ParquetEvents(files)
        batches = [batch.rows for batch in source.batches(NO_SPACE)]
        return _of_table(pa.Table.from_batches(batches, source.schema), path)
    if kind == "csv" or not format.multiline:
        text, batches, wrong = CsvEvents(files, format) if kind == "csv" else JsonEvents(files), [], []
        for batch in text.batches(NO_SPACE):
            batches.append(batch.rows)
            wrong += [WrongClause(None, None, None, None, f"malformed: {record[:80]}") for record in batch.malformed]
        table = pa.Table.from_batches(batches, text.schema)
        names = {name.lower(): name for name in table.schema.names}
        if "id" in names:
            missing = table.column(names["id"]).is_null()
            for row in table.filter(missing).to_pylist():
                wrong.append(WrongClause(None, row.get(names.get("where", "")), None, None, "has no id"))
            table = table.filter(pc.invert(missing))
        rows = _of_table(table, path)
        return SubscriptionRows(rows.ids, rows.clauses, rows.bounds, tuple(wrong))
    raise CallerError(f"{path}: JSON over several lines is read on Spark only")


NO_SPACE = Space.parse("`\x01` bool")  # of a table whose columns are no attributes


def _of_table(table: pa.Table, what: str) -> SubscriptionRows:
    by_name = {name.lower(): name for name in table.schema.names}
    names = ", ".join(map(repr, table.schema.names))
    if len(by_name) < len(table.schema.names):
        raise CallerError(f"{what}: two columns have one name: {names}")
    if "id" not in by_name:
        raise CallerError(f"{what}: has no column 'id'; its columns are {names}")
    ids = table.column(by_name["id"]).combine_chunks()
    if "where" not in by_name:
        return SubscriptionRows(_ids(ids), None, table)
    clauses = table.column(by_name["where"])
    kind = clauses.type.value_type if pa.types.is_dictionary(clauses.type) else clauses.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise CallerError(f"{what}: the column 'where' must be a string, a clause; it is {kind}")
    return SubscriptionRows(_ids(ids), clauses.to_pylist())


def _ids(ids: Any) -> pa.Array:
    """Strings or integers."""
    try:
        array = ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string() if not ids else None)
    except (pa.ArrowException, TypeError):
        array = pa.array(["?"], pa.binary())
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    kind = array.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        array = array.cast(pa.string())
    elif not (pa.types.is_string(kind) or pa.types.is_signed_integer(kind)):
        raise CallerError(f"ids are strings or integers, the column 'id' is {kind}")
    if array.null_count:
        raise CallerError("a subscription has no id: the column 'id' holds NULL")
    return array


def _check_unique(ids: pa.Array) -> None:
    if len(pc.unique(ids)) < len(ids):
        twice = next(each["values"].as_py() for each in pc.value_counts(ids) if each["counts"].as_py() > 1)
        raise CallerError(f"two subscriptions have the id {shown(twice)}: an id is given once")


def compiled(rows: SubscriptionRows, space: Space) -> Compiled:
    """The regions of those that can be used, and what is wrong with the others."""
    _check_unique(rows.ids)
    if rows.clauses is None:
        assert rows.bounds is not None
        return _within_bounds(rows.ids, rows.bounds, space, list(rows.wrong))
    kept, regions, errors = compile_many(rows.clauses, space)
    wrong = [
        WrongClause(rows.ids[row].as_py(), rows.clauses[row], error.line, error.column, error.reason)
        for row, error in errors.items()
    ]
    return Compiled(rows.ids.take(pa.array(kept, pa.int64())), regions, [*rows.wrong, *wrong])


def _within_bounds(ids: pa.Array, table: pa.Table, space: Space, wrong: list[WrongClause]) -> Compiled:
    by_name = {name.lower(): name for name in table.schema.names}
    bad: dict[int, str] = {}  # rows with a bound that cannot be read
    sides: list[dict[int, pa.Array]] = []
    for side in ("low", "high"):
        found: dict[int, pa.Array] = {}
        for index, attribute in enumerate(space.attributes):
            name = bound_column(by_name, side, attribute.name)
            if name is not None:
                column = table.column(name).combine_chunks()
                if pa.types.is_string(column.type):  # text, as in CSV, is read as Spark casts it
                    column, unread = values_of(column, attribute)
                    bad |= {row: f"column {name!r}, {rule}" for row, rule in unread.items() if row not in bad}
                found[index] = column
        sides.append(found)
    if not (sides[0] or sides[1]):
        names_text = ", ".join(map(repr, table.schema.names))
        raise CallerError(
            "subscriptions have either a column 'where' of clauses, or columns of bounds like 'low_price' and "
            f"'high_price' for attributes of the space; these have {names_text}"
        )
    enums = [i for i in sides[0].keys() | sides[1].keys() if isinstance(space.attributes[i].axis, EnumAxis)]
    low, high = ({space.attributes[i].name: c for i, c in side.items() if i not in enums} for side in sides)
    regions = regions_of_boxes(boxes_of_columns(low, high, len(ids), space), space)
    for index in enums:
        ends = [side[index].to_pylist() if index in side else [None] * len(ids) for side in sides]
        regions = within_enum(regions, index, ends[0], ends[1], space)
    wrong += [WrongClause(ids[row].as_py(), None, None, None, bad[row]) for row in sorted(bad)]
    kept = [row for row in range(len(ids)) if row not in bad]
    return Compiled(ids.take(pa.array(kept, pa.int64())), [regions[row] for row in kept], wrong)


def raise_wrong(wrong: Sequence[WrongClause]) -> None:
    if wrong:
        more = f"and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else ""
        raise BadRows([str(each) for each in wrong[:SHOWN]], more)
