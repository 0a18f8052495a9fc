"""Files of rules as people have them: text, CSV, JSON, Parquet, YAML and TOML.

Each gives a table with a column `id`, a column `where` of clauses or columns of bounds, and all further columns; and
the place of each row, for errors. Text has a clause a line, `#` begins a comment line, and the id is the place. `name`
does for `id`, and `clause` or `condition` for `where`, if there is no column of that name. Ids that are integers
throughout are integers, also in text.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from thatch.errors import BadRows, CallerError, check_regular, closest, shown, what_is_no_file
from thatch.local.csv_events import CsvEvents, fields_in, width_problem
from thatch.local.documents import (
    BOUND,
    BYTES_MAX,
    CLAUSE_NAMES,
    ID_NAMES,
    DocumentRule,
    as_text,
    document_rules,
    is_rule,
    key_of,
    value_of,
)
from thatch.local.events import EventSource, ParquetEvents, parquet_file
from thatch.local.files import (
    RULE_SUFFIXES,
    Format,
    decoded,
    delimited,
    files_in,
    kind_of,
    no_such_file,
    one_kind,
    read_problem,
)
from thatch.local.json_lines import JsonEvents, rows_of_line
from thatch.space.space import Space
from thatch.space.structs import json_problem, key_given_twice

STDIN = "-"
DOCUMENTS = ("yaml", "toml", "json")
LINE_MAX = 1 << 24  # characters of a line of text
RECORD_SHOWN, UNREAD_SHOWN = 80, 3  # characters of a malformed record, and rows, that an error repeats
KINDS_READ = (
    "Rules are read from text with a clause a line, and from files that are called .csv, .tsv, .json, .yaml, .toml or "
    ".parquet"
)
CLAUSE_WORDS = ("query", "filter", "expression", "rule", "predicate", "sql")  # what else a clause is called
NO_CLAUSE = re.compile(r"\s*(\[|<|\{|---|- +\w+ *:)")  # how files of other kinds begin
NO_RULES = {"xlsx", "xls", "ods", "doc", "docx", "odt", "rtf", "pdf", "xml", "html", "avro", "orc", "db", "sqlite"}
NO_SPACE = Space.parse("`\x01` bool")  # of a table whose columns are no attributes

RowPlaces = Callable[[Sequence[int]], list[str]]  # of rows, for people: `alerts.csv:7`


class UnreadRule(NamedTuple):
    """A row that could not even be read."""

    place: str | None
    id: Any
    clause: str | None
    rule: str


@dataclass(frozen=True)
class RuleTable:
    """The rules of a file."""

    name: str
    table: pa.Table
    places: RowPlaces | None = None
    unread: tuple[UnreadRule, ...] = ()


def read_rules(path: Any, *, delimiter: str = ",") -> pa.Table:
    """The rules of a file, a folder or a glob as an Arrow table: `id`, `where` or columns of bounds, and all further
    columns. Text has a clause a line, and its ids are FILE:LINE; CSV, JSON, Parquet, YAML and TOML have columns.

    A row that cannot be read is an error that names its place; clauses are not looked at yet.
    """
    found = rules_in(str(path), Format(None, delimiter))
    if found.unread:
        lines = [f"{each.place or found.name}: {each.rule}" for each in found.unread[:UNREAD_SHOWN]]
        raise BadRows(lines, "and more" if len(found.unread) > UNREAD_SHOWN else "", skip="")
    return found.table


def rules_in(path: str, format: Format) -> RuleTable:
    """The rules that a file, a folder, a glob or `-` (standard input) names."""
    if path == STDIN:
        return _of_lines("stdin", _decoded_lines(sys.stdin))
    kind = rule_kind(path, format)
    if kind == "text":
        if not os.path.exists(path):
            raise CallerError(no_such_file(path))
        if what_is_no_file(path) != "a named pipe":  # which is read once, as a file is
            check_regular(path)
        with open(path, encoding="utf-8") as file:
            return _of_lines(path, file)
    files = files_in([path])
    if kind in DOCUMENTS and (kind != "json" or format.multiline or _is_document(files[0])):
        if len(files) > 1:
            raise CallerError(f"{path}: holds {len(files):,} files in {kind.upper()}: name them one by one")
        return _of_document(files[0], kind)
    if kind == "parquet":
        source = ParquetEvents(files)
        batches = [batch.rows for batch in source.batches(NO_SPACE)]
        table = _named(path, pa.Table.from_batches(batches, source.schema))
        return RuleTable(path, table, lambda rows: _places(rows, _parquet_rows(files)))
    return _of_text_table(path, files, kind, format)


def rule_kind(path: str, format: Format) -> str:
    """What a file of rules holds: text, unless its name or the caller says something else."""
    own = kind_of(path, RULE_SUFFIXES)
    if own in ("yaml", "toml"):
        return own
    if own is None and _is_one_file(path):
        if os.path.splitext(path)[1].lstrip(".").lower() in NO_RULES:
            raise CallerError(f"{path}: is of a kind that is not read. {KINDS_READ}")
        return "text"
    return one_kind([path], Format(own or format.kind, format.delimiter, format.multiline))


def _is_one_file(path: str) -> bool:
    return os.path.isfile(path) or not (os.path.isdir(path) or glob.has_magic(path))


# Text


def _decoded_lines(file: Any) -> Iterator[str]:
    """Lines of standard input, which Python may read as if every byte were a character."""
    for number, line in enumerate(getattr(file, "buffer", file)):
        yield decoded(line, "stdin", number) if isinstance(line, bytes) else line


def _of_lines(name: str, file: Any) -> RuleTable:
    ids, clauses = [], []
    try:
        for number, line in enumerate(file, 1):
            if len(line) > LINE_MAX:
                raise CallerError(f"{name}:{number}: a line is longer than {LINE_MAX:,} characters")
            line = line.removeprefix("\ufeff") if number == 1 else line
            if line.strip() and not line.lstrip().startswith("#"):
                ids.append(f"{name}:{number}")
                clauses.append(line.rstrip("\r\n"))
    except UnicodeDecodeError:
        if name != "stdin" and os.path.isfile(name):
            with open(name, "rb") as whole:
                decoded(whole.read(), name)
        raise CallerError(f"{name}: not UTF-8 text") from None
    if clauses and NO_CLAUSE.match(clauses[0]):
        raise CallerError(f"{name}: {shown(clauses[0], 40)} is no clause. {KINDS_READ}")
    table = pa.table({"id": pa.array(ids, pa.string()), "where": pa.array(clauses, pa.string())})
    return RuleTable(name, table, lambda rows: [ids[row] for row in rows])


# Tables


def _of_text_table(path: str, files: Sequence[str], kind: str, format: Format) -> RuleTable:
    if kind == "csv":
        format = delimited(files, Format("csv", format.delimiter, multiline=True))
        source: EventSource = CsvEvents(files, format)
        lines = partial(_csv_lines, files, format.delimiter)
    else:
        _check_keys(files)
        source, lines = JsonEvents(files), partial(_json_lines, files)
    batches, malformed = [], []
    for batch in source.batches(NO_SPACE):
        batches.append(batch.rows)
        malformed += batch.malformed
    bad_places = [span.place for span in lines() if span.rows is None] if malformed else []
    known = len(bad_places) == len(malformed)
    unread = []
    for at, record in enumerate(malformed):
        place = bad_places[at] if known else path
        unread.append(UnreadRule(place, None, record[:RECORD_SHOWN], _why_malformed(record, source, format)))

    def places(rows: Sequence[int]) -> list[str]:
        return _places(rows, lines())

    table = _named(path, pa.Table.from_batches(batches, source.schema))
    if "id" not in table.schema.names:
        return RuleTable(path, table, places, tuple(unread))
    missing = table.column("id").is_null()
    kept = pc.indices_nonzero(pc.invert(missing)).to_pylist()
    if len(kept) < len(table):
        without = pc.indices_nonzero(missing).to_pylist()
        clauses = table.column("where").to_pylist() if "where" in table.schema.names else None
        for row, place in zip(without, places(without), strict=True):
            unread.append(UnreadRule(place, None, clauses and clauses[row], "has no id"))
    table = _with_integer_ids(table.take(pa.array(kept, pa.int64())))
    return RuleTable(path, table, lambda rows: places([kept[row] for row in rows]), tuple(unread))


def _why_malformed(record: str, source: EventSource, format: Format) -> str:
    """What is wrong with a record that is no row."""
    if not isinstance(source, CsvEvents):
        return f"malformed: {json_problem(record, dict[str, Any])}"
    width, mark = len(source.schema), format.delimiter
    problem = width_problem(record, mark, width)
    if problem is None:
        return f"malformed: {record[:RECORD_SHOWN]}"
    has_more = mark == "," and len(fields_in(record, mark)) > width
    return f"{problem}: a clause with commas stands in double quotes" if has_more else problem


def _check_keys(files: Sequence[str]) -> None:
    """An object in JSON lines that has a key twice: of the two rules in it, one would be lost."""
    for path in files:
        with pa.input_stream(path, compression="detect") as stream:
            for number, line in enumerate(io.BufferedReader(stream), 1):
                key = key_given_twice(line)
                if key is not None:
                    raise CallerError(f"{path}:{number}: the key {shown(key)} is given twice")


def _named(path: str, table: pa.Table) -> pa.Table:
    """With columns called `id` and `where`, if there are such."""
    names = list(table.schema.names)
    folded = [name.lower() for name in names]
    if len(set(folded)) < len(folded):
        raise CallerError(f"{path}: two columns have one name: {', '.join(map(repr, names))}")
    for wanted, known in (("id", ID_NAMES), ("where", CLAUSE_NAMES)):
        at = next((folded.index(name) for name in known if name in folded), None)
        if at is not None:
            names[at] = wanted
    return table.rename_columns(names)


def columns_problem(names: Sequence[str], needs_clauses: bool = False) -> str | None:
    """What the columns of a table of rules lack; None if it has ids, and clauses or columns of bounds.

    >>> print(columns_problem(["id", "query"]))
    has no column 'where'. Is 'query' meant?
    >>> print(columns_problem(["id;where"]))
    has one column, 'id;where'. Another delimiter? --delimiter ';'
    """
    folded, listed = [name.lower() for name in names], ", ".join(map(repr, names))
    is_bounded = any(BOUND.search(name) for name in folded)
    if len(names) == 1 and (mark := re.search(r"[;|\t]", names[0])):
        return f"has one column, {names[0]!r}. Another delimiter? --delimiter {mark[0]!r}"
    if "id" not in folded and any(re.search(r"[<>=']", name) for name in names):
        return "has a rule in its first line, where the header belongs: id,where"
    if "id" not in folded:
        close = closest("id", names)
        meant = (
            f". Is {close!r} meant?"
            if close
            else f"; its columns are {listed}. Rules have an id and a clause, events do not: have you swapped them?"
        )
        return f"has no column 'id'{meant}"
    if "where" in folded or (is_bounded and not needs_clauses):
        return None
    if is_bounded:
        return "has bounds in place of clauses: this command takes clauses; match, reduce, learn and audit take both"
    others = [name for name in names if name.lower() != "id"]
    close = closest("where", others) or next((name for name in others if name.lower() in CLAUSE_WORDS), None)
    hint = f" of clauses, nor columns of bounds such as 'low_price'; its columns are {listed}"
    return "has no column 'where'" + (f". Is {close!r} meant?" if close else hint)


def _with_integer_ids(table: pa.Table) -> pa.Table:
    """Ids of text that are integers throughout, as they would be written."""
    at, ids = table.schema.get_field_index("id"), table.column("id")
    if len(ids) and pa.types.is_string(ids.type) and pc.all(pc.match_substring_regex(ids, INTEGER)).as_py():
        return table.set_column(at, "id", ids.cast(pa.int64()))
    return table


INTEGER = r"^(0|-?[1-9][0-9]{0,17})$"


class _Span(NamedTuple):
    """Rows that stand at one place."""

    place: str
    rows: int | None  # None: it is malformed
    are_numbered: bool = False


def _parquet_rows(files: Sequence[str]) -> Iterator[_Span]:
    for path in files:
        yield _Span(path, parquet_file(path).metadata.num_rows, True)


def _csv_lines(files: Sequence[str], delimiter: str) -> Iterator[_Span]:
    csv.field_size_limit(max(csv.field_size_limit(), LINE_MAX))
    for path in files:
        with pa.input_stream(path, compression="detect") as stream:
            reader = csv.reader(
                io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline=""), delimiter=delimiter
            )
            width, before = len(next(filter(None, reader), [])), reader.line_num
            for fields in reader:
                if fields:
                    yield _Span(f"{path}:{before + 1}", 1 if len(fields) == width else None)
                before = reader.line_num


def _json_lines(files: Sequence[str]) -> Iterator[_Span]:
    for path in files:
        with pa.input_stream(path, compression="detect") as stream:
            for number, line in enumerate(io.BufferedReader(stream), 1):
                if line.strip():
                    found = rows_of_line(line)
                    yield _Span(f"{path}:{number}", None if found is None else len(found))


def _places(rows: Sequence[int], spans: Iterable[_Span]) -> list[str]:
    """The places of rows, which the spans hold in order."""
    found: dict[int, str] = {}
    wanted = sorted(set(rows))
    at = first = 0
    for span in spans:
        count = span.rows or 0
        while at < len(wanted) and wanted[at] < first + count:
            found[wanted[at]] = f"{span.place}, row {wanted[at] - first}" if span.are_numbered else span.place
            at += 1
        first += count
        if at == len(wanted):
            break
    return [found.get(row, f"row {row}") for row in rows]


# Documents


def _is_document(path: str) -> bool:
    """Whether JSON is one document rather than an object a line."""
    with pa.input_stream(path, compression="detect") as stream:
        for line in io.BufferedReader(stream):
            if line.strip():
                found = rows_of_line(line) if len(line) <= LINE_MAX else None
                return found is None or line.lstrip().startswith(b"[") or not any(map(_has_id, found))
    return False


def _has_id(row: dict[str, Any]) -> bool:
    return key_of(row, ID_NAMES) is not None


def _of_document(path: str, kind: str) -> RuleTable:
    try:
        with pa.input_stream(path, compression="detect") as stream:
            data = stream.read(BYTES_MAX + 1)
    except (OSError, pa.ArrowException) as error:
        raise CallerError(f"{path}: cannot be read: {read_problem(error)}") from None
    if len(data) > BYTES_MAX:
        raise CallerError(f"{path}: is larger than {BYTES_MAX // 2**20} MB: write it as CSV, JSON lines or Parquet")
    text = decoded(data, path).removeprefix("\ufeff")
    if kind == "json" and not text.strip():
        raise CallerError(f"{path}: it is empty")
    rules = document_rules(text, kind, path)
    if "\\u" in text or "\\U" in text:
        _check_unicode(rules, path)
    rows, places, unread = [], [], []
    has_clauses = not any(is_rule(each.rule) and key_of(each.rule, CLAUSE_NAMES) is None for each in rules) or any(
        isinstance(each.rule, str) or (isinstance(each.rule, dict) and key_of(each.rule, CLAUSE_NAMES) is not None)
        for each in rules
    )
    for each in rules:
        place = f"{path}{each.place}"
        row, problem = _row(each, place, has_clauses)
        if problem is None:
            rows.append(row)
            places.append(place)
        else:
            unread.append(UnreadRule(place, row.get("id"), row.get("where"), problem))
    names = dict.fromkeys(["id", *(["where"] if has_clauses else []), *(name for row in rows for name in row)])
    columns = {name: _column([row.get(name) for row in rows], name) for name in names}
    table = _with_integer_ids(pa.table(columns))
    return RuleTable(path, table, lambda chosen: [places[row] for row in chosen], tuple(unread))


def _check_unicode(rules: Sequence[DocumentRule], path: str) -> None:
    """An escape may stand for half a surrogate pair, which is no text."""
    for each in rules:
        try:
            (_texts_of(each.rule) + (each.key or "")).encode()
        except UnicodeEncodeError:
            raise CallerError(f"{path}{each.place}: is not valid Unicode: it holds half a surrogate pair") from None


def _texts_of(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(key + _texts_of(each) for key, each in value.items())
    return "".join(map(_texts_of, value)) if isinstance(value, list) else str(value)


def _instead(wanted: str, row: Mapping[str, Any]) -> str:
    """The key that was likely meant: one that is misspelt, or the only one that is left for a clause."""
    others = [key for key, value in row.items() if key != wanted and value is not None]
    close = closest(wanted, others)
    left = [key for key in others if key not in ID_NAMES and isinstance(row[key], str)]
    if close is None and wanted == "where" and len(left) == 1:
        close = left[0]
    return "" if close is None else f" (is `{close}` meant?)"


def _row(each: DocumentRule, place: str, has_clauses: bool) -> tuple[dict[str, Any], str | None]:
    """The columns of a rule, and why it cannot be used."""
    rule = each.rule
    if isinstance(rule, str):
        return {"id": each.key or place, "where": as_text(rule)}, None
    if not isinstance(rule, dict):
        found = shown(value_of(rule))
        return {}, f"is no rule: a clause, or a mapping with `id` and `where`, belongs here, not {found}"
    if len({key.lower() for key in rule}) < len(rule):
        return {}, f"has a key twice, in upper and in lower case: {', '.join(map(repr, rule))}"
    id_key, clause_key = key_of(rule, ID_NAMES), key_of(rule, CLAUSE_NAMES)
    if each.key is not None and id_key is not None and id_key.lower() != "id":
        id_key = None  # the key is the id, and a name is one more column
    if id_key is not None and isinstance(rule[id_key], list | dict):
        return {}, f"an id is a text or a whole number, not {shown(value_of(rule[id_key]))}"
    row = {"id": each.key if id_key is None else as_text(rule[id_key])}
    row |= {"where": None if clause_key is None else as_text(rule[clause_key])} if has_clauses else {}
    for key, value in rule.items():
        if key not in (id_key, clause_key):
            is_bound = not has_clauses and BOUND.search(key.lower())  # as it was written: a decimal is not rounded
            row[key] = as_text(value) if is_bound else value_of(value)
    if each.key is not None and row["id"] != each.key:
        return row, f"has two ids, {shown(each.key)} and {shown(row['id'])}"
    if row["id"] is None:
        return row, f"has no id: give it a key `id`{_instead('id', row)}"
    if has_clauses and row["where"] is None:
        return (
            row,
            f"has no clause: give it a key `where`, TRUE for a rule that wants everything{_instead('where', row)}",
        )
    return row, None


def _column(values: list[Any], name: str) -> pa.Array:
    """Values of one type as they are, of several as text."""
    if name in ("id", "where"):
        return pa.array(values, pa.string())
    try:
        found = pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError):
        return pa.array([as_text(value) for value in values], pa.string())
    return found.cast(pa.string()) if pa.types.is_null(found.type) else found
