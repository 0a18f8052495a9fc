"""Subscriptions in tables, mappings and files: ids with clauses, or with typed columns of bounds.

Bounds are `low_price` and `high_price` (or `price_low`, `price_high`) for an attribute `price`. Both null:
unconstrained. One null: unbounded on that side, and not null.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thatch.errors import BadRows, CallerError, EmptyRegionWarning, shown
from thatch.local.documents import as_text
from thatch.local.files import Format
from thatch.local.rule_files import RowPlaces, RuleTable, columns_problem, rules_in
from thatch.local.sources import table_of
from thatch.local.text_values import values_of
from thatch.region.columns import boxes_of_columns, regions_of_boxes
from thatch.region.region import Region
from thatch.space.axis import EnumAxis
from thatch.space.declaration import time_zone_named
from thatch.space.event_columns import bound_column, bounded_columns, check_bounds
from thatch.space.schemas import ColumnPath
from thatch.space.space import Space
from thatch.where.enum_bounds import within_enum
from thatch.where.many import compile_many
from thatch.where.names import names_in

SHOWN = 3  # wrong clauses that an error names


class WrongClause(NamedTuple):
    """A subscription that cannot be used, and why. Lines and columns are of its clause and count from 1."""

    id: Any
    clause: str | None
    line: int | None
    column: int | None
    rule: str
    place: str | None = None  # where it stands, if that is known: a file and a line

    def __str__(self) -> str:
        within = "" if self.line is None else f", line {self.line}, column {self.column}"
        clause = "" if self.clause is None else f"\n    {shown(self.clause)}"
        place = "" if self.place is None or self.place == self.id else f"{self.place}: "
        return f"{place}subscription {self.id!r}{within}: {self.rule}{clause}"


@dataclass(frozen=True)
class SubscriptionRows:
    """Rows of subscriptions before they have a space."""

    ids: pa.Array
    clauses: list[str | None] | None  # None: there are bounds
    bounds: pa.Table | None = None
    wrong: tuple[WrongClause, ...] = ()  # rows that could not even be read
    places: RowPlaces | None = None  # where rows stand
    details: pa.Table | None = None  # what else is known of each row

    def paths(self, schema: Any, time_zone: str) -> set[ColumnPath]:
        """The columns of a table of events that these look at."""
        if self.clauses is not None:
            return names_in((clause for clause in self.clauses if clause is not None), time_zone_named(time_zone))
        assert self.bounds is not None
        return bounded_columns(schema, {name.lower(): name for name in self.bounds.schema.names})


@dataclass(frozen=True)
class Compiled:
    ids: pa.Array
    regions: list[Region]
    wrong: list[WrongClause]
    details: pa.Table | None = None


def _taken(rows: Any, places: Sequence[int]) -> Any:
    return rows.take(pa.array(places, pa.int64()))


def subscriptions_of(given: Any, format: Format) -> SubscriptionRows:
    """From a mapping of ids to clauses, a list of mappings, a table or frame, or the path of a file of rules."""
    if isinstance(given, SubscriptionRows):
        return given
    if isinstance(given, Mapping):
        for id, clause in given.items():
            if clause is not None and not isinstance(clause, str):
                raise CallerError(f"the clause of {shown(id)} is a string, not {type(clause).__name__}")
        _check_ids(list(given))
        return SubscriptionRows(_ids(list(given)), list(given.values()))
    if isinstance(given, list) and all(isinstance(each, Mapping) for each in given):
        return rows_of_rules(RuleTable("the subscriptions", pa.Table.from_pylist(given)))
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        return rows_of_rules(rules_in(str(given), format))
    return _of_table(table_of(given, "subscriptions"), "the subscriptions")


def rows_of_rules(rules: RuleTable) -> SubscriptionRows:
    """The rows of a file of rules; what is neither an id nor a clause nor a bound is kept beside them."""
    rows = _of_table(rules.table, rules.name)
    wrong = tuple(WrongClause(each.id, each.clause, None, None, each.rule, each.place) for each in rules.unread)
    names = [name for name in rules.table.schema.names if not _is_used(name, rows.clauses is None)]
    details = rules.table.select(names) if names else None
    return replace(rows, wrong=wrong, places=rules.places, details=details)


def _is_used(name: str, in_bounds: bool) -> bool:
    """Whether a column is an id, a clause or, in a table of bounds, looks like a bound."""
    return name in ("id", "where") or (in_bounds and re.search(r"^(low|high)_|_(low|high)$", name.lower()) is not None)


def without_rules(files: Sequence[str], parts: Sequence[SubscriptionRows]) -> tuple[list[str], bool]:
    """The files that hold no rules, and whether there are others."""
    empty = [name for name, each in zip(files, parts, strict=True) if not len(each.ids) and not each.wrong]
    return empty, len(empty) < len(files)


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
    try:
        bounds = pa.concat_tables(tables, promote_options="permissive") if clauses is None else None
    except pa.ArrowException:
        raise CallerError("the --where files have bounds of different types: match them one by one") from None
    return SubscriptionRows(_ids(ids), clauses, bounds, wrong, _joined_places(parts), _joined_columns(parts))


def _joined_places(parts: Sequence[SubscriptionRows]) -> RowPlaces:
    starts = np.cumsum([0, *(len(each.ids) for each in parts)])

    def places(rows: Sequence[int]) -> list[str]:
        found = dict[int, str]()
        for part, first in zip(parts, starts.tolist(), strict=False):
            own = [row for row in rows if first <= row < first + len(part.ids)]
            if part.places is not None and own:
                found.update(zip(own, part.places([row - first for row in own]), strict=True))
        return [found.get(row, f"row {row}") for row in rows]

    return places


def _joined_columns(parts: Sequence[SubscriptionRows]) -> pa.Table | None:
    """Further columns of several files: where their types differ, text."""
    if all(each.details is None for each in parts):
        return None
    types: dict[str, set[pa.DataType]] = {}
    for each in parts:
        for field in each.details.schema if each.details is not None else ():
            types.setdefault(field.name, set()).add(field.type)
    columns = {}
    for name, own in types.items():
        kind = own.pop() if len(own) == 1 else pa.string()
        chunks = [_column_as(each, name, kind) for each in parts]
        columns[name] = pa.chunked_array(chunks, kind)
    return pa.table(columns)


def _column_as(part: SubscriptionRows, name: str, kind: pa.DataType) -> pa.Array:
    if part.details is None or name not in part.details.schema.names:
        return pa.nulls(len(part.ids), kind)
    column = part.details.column(name).combine_chunks()
    if column.type == kind:
        return column
    return pa.array([as_text(value) for value in column.to_pylist()], kind)


def _of_table(table: pa.Table, what: str) -> SubscriptionRows:
    by_name = {name.lower(): name for name in table.schema.names}
    names = ", ".join(map(repr, table.schema.names))
    if len(by_name) < len(table.schema.names):
        raise CallerError(f"{what}: two columns have one name: {names}")
    problem = columns_problem(table.schema.names)
    if problem is not None:
        raise CallerError(f"{what}: {problem}")
    ids = table.column(by_name["id"]).combine_chunks()
    if "where" not in by_name:
        return SubscriptionRows(_ids(ids), None, table)
    clauses = table.column(by_name["where"])
    kind = clauses.type.value_type if pa.types.is_dictionary(clauses.type) else clauses.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise CallerError(f"{what}: the column 'where' must be a string, a clause; it is {kind}")
    return SubscriptionRows(_ids(ids), clauses.to_pylist())


def _check_ids(ids: Sequence[Any]) -> None:
    """Of a mapping: a column has one type."""
    texts = sum(isinstance(id, str) for id in ids)
    for id in ids:
        if isinstance(id, bool) or not isinstance(id, str | int | np.integer):
            raise CallerError(f"ids are strings or integers, not {shown(id)}")
        if not isinstance(id, str) and not -(2**63) <= id < 2**63:
            raise CallerError(f"an id that is an integer has 64 bits, not {shown(id)}")
        if isinstance(id, str) != (texts == len(ids)):
            number = id if not isinstance(id, str) else next(each for each in ids if not isinstance(each, str))
            raise CallerError(f"ids are all strings or all integers: {shown(number)} stands among strings")


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


def _check_unique(rows: SubscriptionRows) -> None:
    if len(pc.unique(rows.ids)) < len(rows.ids):
        ids = rows.ids.to_pylist()
        twice = next(each["values"].as_py() for each in pc.value_counts(rows.ids) if each["counts"].as_py() > 1)
        two = [row for row, id in enumerate(ids) if id == twice][:2]
        places = "" if rows.places is None else f", in {' and '.join(rows.places(two))}"
        raise CallerError(f"two subscriptions have the id {shown(twice)}{places}: an id is given once")


def compiled(rows: SubscriptionRows, space: Space) -> Compiled:
    """The regions of those that can be used, and what is wrong with the others."""
    _check_unique(rows)
    if rows.clauses is None:
        return _within_bounds(rows, space)
    kept, regions, errors = compile_many(rows.clauses, space)
    wrong = [
        WrongClause(rows.ids[row].as_py(), rows.clauses[row], error.line, error.column, error.reason, place)
        for (row, error), place in zip(errors.items(), _places_of(rows, list(errors)), strict=True)
    ]
    details = None if rows.details is None else _taken(rows.details, kept)
    return Compiled(_taken(rows.ids, kept), regions, [*rows.wrong, *wrong], details)


def _places_of(rows: SubscriptionRows, wanted: Sequence[int]) -> Sequence[str | None]:
    return [None] * len(wanted) if rows.places is None or not wanted else rows.places(wanted)


class TypedBounds(NamedTuple):
    low: dict[int, pa.Array]  # by attribute
    high: dict[int, pa.Array]
    names: dict[str, int]  # the columns that were read, and their attributes
    wrong: dict[int, WrongClause]  # rows with a bound that cannot be read


def typed_bounds(rows: SubscriptionRows, space: Space) -> TypedBounds:
    """Columns of bounds as values of their attributes; text, as in CSV, is read as Spark casts it."""
    table = rows.bounds
    assert table is not None
    by_name = {name.lower(): name for name in table.schema.names}
    bad: dict[int, str] = {}
    found = TypedBounds({}, {}, {}, {})
    for side, columns in (("low", found.low), ("high", found.high)):
        for index, attribute in enumerate(space.attributes):
            name = bound_column(by_name, side, attribute.name)
            if name is None:
                continue
            column = table.column(name).combine_chunks()
            if pa.types.is_string(column.type):
                column, unread = values_of(column, attribute)
                bad |= {row: f"column {name!r}, {rule}" for row, rule in unread.items() if row not in bad}
            columns[index], found.names[name] = column, index
    if not found.names:
        check_bounds(table.schema.names, found.names, space)
        names = ", ".join(map(repr, table.schema.names))
        raise CallerError(
            "subscriptions have either a column 'where' of clauses, or columns of bounds like 'low_price' and "
            f"'high_price' for attributes of the space; these have {names}"
        )
    check_bounds(table.schema.names, found.names, space)
    _warn_of_crossed(rows, found, space)
    wanted = sorted(bad)
    for row, place in zip(wanted, _places_of(rows, wanted), strict=True):
        found.wrong[row] = WrongClause(rows.ids[row].as_py(), None, None, None, bad[row], place)
    return found


def _warn_of_crossed(rows: SubscriptionRows, found: TypedBounds, space: Space) -> None:
    """A lower bound above the upper one: no event can match, which is hardly meant."""
    by_name = {name.lower(): name for name in found.names}
    lines = []
    for index in sorted(found.low.keys() & found.high.keys()):
        if isinstance(space.attributes[index].axis, EnumAxis):
            continue
        low, high = found.low[index], found.high[index]
        try:
            crossed = pc.indices_nonzero(pc.greater(low, high).fill_null(False)).to_pylist()
        except pa.ArrowException:  # columns of two types that Arrow does not compare
            continue
        for row in crossed:
            name = space.attributes[index].name
            names = [
                f"{bound_column(by_name, side, name)} {column[row].as_py()}"
                for side, column in (("low", low), ("high", high))
            ]
            lines.append(f"rule {rows.ids[row].as_py()}: {names[0]} is above {names[1]}: no event can match it")
    more = f"\nand {len(lines) - SHOWN:,} more" if len(lines) > SHOWN else ""
    if lines:
        warnings.warn("\n".join(lines[:SHOWN]) + more, EmptyRegionWarning, stacklevel=2)


def _within_bounds(rows: SubscriptionRows, space: Space) -> Compiled:
    ids, bounds = rows.ids, typed_bounds(rows, space)
    sides = (bounds.low, bounds.high)
    enums = [i for i in sides[0].keys() | sides[1].keys() if isinstance(space.attributes[i].axis, EnumAxis)]
    low, high = ({space.attributes[i].name: c for i, c in side.items() if i not in enums} for side in sides)
    regions = regions_of_boxes(boxes_of_columns(low, high, len(ids), space), space)
    for index in enums:
        ends = [side[index].to_pylist() if index in side else [None] * len(ids) for side in sides]
        regions = within_enum(regions, index, ends[0], ends[1], space)
    kept = [row for row in range(len(ids)) if row not in bounds.wrong]
    details = None if rows.details is None else _taken(rows.details, kept)
    wrong = [*rows.wrong, *bounds.wrong.values()]
    return Compiled(_taken(ids, kept), [regions[row] for row in kept], wrong, details)


WRONG_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("where", pa.string()),
        ("line", pa.int32()),
        ("column", pa.int32()),
        ("error", pa.string()),
        ("place", pa.string()),
    ]
)


def wrong_table(wrong: Sequence[WrongClause]) -> pa.Table:
    """Subscriptions that cannot be used, as a table."""
    rows = [[None if w.id is None else str(w.id), w.clause, w.line, w.column, w.rule, w.place] for w in wrong]
    return pa.Table.from_pylist([dict(zip(WRONG_SCHEMA.names, row, strict=True)) for row in rows], WRONG_SCHEMA)


def raise_wrong(wrong: Sequence[WrongClause]) -> None:
    if wrong:
        more = f"and {len(wrong) - SHOWN:,} more" if len(wrong) > SHOWN else ""
        raise BadRows([str(each) for each in wrong[:SHOWN]], more)


def warn_wrong(count: int) -> None:
    """For the caller of the function that calls this."""
    if count:
        warnings.warn(f"{count:,} clauses are wrong and left out", stacklevel=4)
