"""Every event with every subscription that wants it, in this process.

Events come in batches; each batch is encoded and asked of the index by one of a few threads, which the kernels and
Arrow leave to run side by side. A handful of batches is under way at a time, so that memory does not grow with the
table.
"""

from __future__ import annotations

import io
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import pyarrow as pa

from thatch.errors import BadRows, EventError, check_on_error
from thatch.local.events import EventBatch, EventSource
from thatch.local.files import Format
from thatch.local.inferred import checked_space
from thatch.local.sources import events_of
from thatch.local.subscriptions import Compiled, compiled, raise_wrong, subscriptions_of, warn_wrong
from thatch.local.text_values import rule_of
from thatch.space.axis import Coordinates
from thatch.space.event_columns import ID, detail_names
from thatch.space.space import Space

FEW = 8  # subscriptions: asked one by one, they are through before an index is built
THREADS = min(4, os.cpu_count() or 1)
ROWS_MAX = 262_144  # of a batch of matches
WRONG_SHOWN, EVENT_SHOWN = 3, 400  # bad events that an error names, and characters of each
if TYPE_CHECKING:
    from thatch.region.ball import Ball
    from thatch.region.region import Region
    from thatch.space.arrays import Ints

T = TypeVar("T")
U = TypeVar("U")


def match(
    events: Any, subscriptions: Any, space: Space | None = None, *, on_error: str = "raise", details: bool = False
) -> pa.Table:
    """Every event with every subscription that wants it: the event's columns and `subscription_id`, as an Arrow table,
    in the order of the events.

    `events` is an Arrow table, a pandas or Polars frame, or the path of Parquet, CSV or JSON files; `subscriptions` is
    a mapping of ids to clauses, a table of `id` and `where`, or one of `id` and typed columns of bounds (`low_price`,
    `high_price`), also as a path. Without a space, it is taken from the schema of the events: text has none.
    `on_error="skip"` leaves out clauses that are wrong and events with a value that their attribute does not allow.
    `details`: further columns of a file of rules follow the id, as `subscription_owner`.

    >>> import pyarrow as pa
    >>> trades = pa.table({"symbol": ["IBM", "SAP", "IBM"], "price": [12.5, 80.0, None]})
    >>> found = match(trades, {"cheap": "price < 20", "ibm": "symbol = 'IBM'"})
    >>> found.select(["price", "subscription_id"]).to_pylist()
    [{'price': 12.5, 'subscription_id': 'cheap'}, {'price': 12.5, 'subscription_id': 'ibm'}, \
{'price': None, 'subscription_id': 'ibm'}]
    """
    work = Match.of(events, subscriptions, space, on_error)
    work.with_details = details
    if work.compiled.wrong and not work.skip:
        raise_wrong(work.compiled.wrong)
    warn_wrong(len(work.compiled.wrong))
    return pa.Table.from_batches(work.matches(), work.schema)


@dataclass
class Match:
    """A match that is about to be done: events, subscriptions and their space."""

    events: EventSource
    compiled: Compiled
    space: Space
    skip: bool
    seen: int = 0  # events so far
    bad: int = 0  # of them, so far
    on_bad: Callable[[EventBatch, dict[int, str]], None] | None = None  # is given what is left out
    with_details: bool = False  # columns of the subscriptions come after their ids

    @classmethod
    def of(
        cls,
        events: Any,
        subscriptions: Any,
        space: Space | None,
        on_error: str,
        format: Format | None = None,
        time_zone: str = "UTC",
    ) -> Match:
        check_on_error(on_error)
        source = events_of(events, format or Format())
        rows = subscriptions_of(subscriptions, format or Format())
        space = checked_space(space, source, rows, time_zone, on_error)
        return cls(source, compiled(rows, space), space, on_error == "skip")

    @property
    def schema(self) -> pa.Schema:
        events = self.events.value_schema(self.space)
        return pa.schema([*events, pa.field(ID, self.compiled.ids.type), *self._detail_fields(events.names)])

    def _detail_fields(self, taken: Sequence[str]) -> list[pa.Field]:
        if self.compiled.details is None or not self.with_details:
            return []
        names = detail_names(self.compiled.details.schema.names, taken)
        return [pa.field(name, field.type) for name, field in zip(names, self.compiled.details.schema, strict=True)]

    def matches(self) -> Iterator[pa.RecordBatch]:
        """Batches of events, each row as often as it matches, with the ids."""
        schema, details = self.schema, self.compiled.details if self.with_details else None
        named = [] if details is None else [column.combine_chunks() for column in details.columns]
        for batch, rows, numbers in self._pairs():
            for start in range(0, len(rows), ROWS_MAX):
                part = slice(start, start + ROWS_MAX)
                taken = batch.rows.take(pa.array(rows[part]))
                who = pa.array(numbers[part])
                of_subscriptions = [column.take(who) for column in (self.compiled.ids, *named)]
                yield pa.record_batch([*taken.columns, *of_subscriptions], schema=schema)

    def counts(self) -> Ints:
        """How many events each subscription wants."""
        found = np.zeros(len(self.compiled.regions), np.int64)
        for _, _, numbers in self._pairs():
            found += np.bincount(numbers, minlength=len(found))
        return found

    def _pairs(self) -> Iterator[tuple[EventBatch, Ints, Ints]]:
        """Batches, and the rows in them with the numbers of subscriptions that want them."""
        ask = _asked(self.compiled, self.space)

        def found(batch: EventBatch) -> tuple[EventBatch, Ints, Ints, dict[int, str]]:
            return batch, *self._found(batch, ask)

        for batch, rows, numbers, wrong in in_order(self.events.batches(self.space), found, THREADS):
            self.seen += batch.rows.num_rows + len(batch.malformed)
            self._note(batch, wrong)
            yield batch, rows, numbers

    def _found(self, batch: EventBatch, ask: Asking) -> tuple[Ints, Ints, dict[int, str]]:
        rows, space = batch.rows, self.space

        def matched() -> tuple[Ints, Ints, dict[int, str]]:
            wrong = dict(batch.wrong)
            try:
                columns, kept = space.encode_batch(rows), None
            except EventError:
                columns, good = space.encode_valid(rows)
                kept = np.flatnonzero(good)
                for row in np.flatnonzero(~good).tolist():
                    wrong.setdefault(row, _why(rows.slice(row, 1), space))
            found, numbers = ask(columns)
            if kept is not None:
                found = kept[found]
            if batch.wrong:  # their text could not be read: the value is not NULL
                right = ~np.isin(found, np.array(list(batch.wrong), np.int64))
                found, numbers = found[right], numbers[right]
            return found, numbers, wrong

        return space.stable(matched)[0]

    def _note(self, batch: EventBatch, wrong: dict[int, str]) -> None:
        bad = len(wrong) + len(batch.malformed)
        if not bad:
            return
        if not self.skip:
            raise_bad_events(batch, wrong, self.space)
        self.bad += bad
        if self.on_bad is not None:
            self.on_bad(batch, wrong)


Asking = Callable[[list[Coordinates]], "tuple[Ints, Ints]"]


def _asked(subscriptions: Compiled, space: Space) -> Asking:
    """How events are asked who wants them: by an index, or by each of a few subscriptions."""
    regions = subscriptions.regions
    if len(regions) > FEW:
        from thatch.matching.index import TreeMatcher

        matcher = TreeMatcher(space)
        matcher.add_many(np.arange(len(regions)), regions)
        view = matcher.view()

        def ask(columns: list[Coordinates]) -> tuple[Ints, Ints]:
            rows, numbers = view.match_points(columns)
            order = np.lexsort((numbers, rows))
            return rows[order], numbers[order]

        return ask

    def each(columns: list[Coordinates]) -> tuple[Ints, Ints]:
        found = [np.flatnonzero(_held(region, columns)) for region in regions]
        rows = np.concatenate([*found, np.zeros(0, np.int64)])
        numbers = np.repeat(np.arange(len(regions)), [len(own) for own in found])
        order = np.lexsort((numbers, rows))
        return rows[order], numbers[order]

    return each


def _held(region: Region, columns: list[Coordinates]) -> Any:
    """`Region.contains_points`, without the compiler where it is not needed: to load it takes longer than the rest."""
    held = np.zeros(len(columns[0]), np.bool_)
    for term in region.terms:
        mask = np.ones(len(held), np.bool_)
        for index, intervals in term.sides:
            column, ends = columns[index], intervals.to_numpy().reshape(-1, 2)
            if len(ends) == 1:
                mask &= (column >= ends[0, 0]) & (column <= ends[0, 1])
            else:
                place = np.searchsorted(ends[:, 0], column, "right") - 1
                mask &= (place >= 0) & (column <= ends[np.maximum(place, 0), 1])
        for ball in term.balls:
            mask &= _within(ball, columns, region.space)
        held |= mask
    return held


def _within(ball: Ball, columns: list[Coordinates], space: Space) -> Any:
    """Squares are added from left to right, as Spark does; NaN is never within."""
    total = np.zeros(len(columns[0]))
    for index, middle in zip(ball.attributes, ball.centre, strict=True):
        offset = space.attributes[index].axis.to_double(columns[index]) - middle
        total = total + offset * offset
    return total <= ball.radius * ball.radius


def in_order(items: Iterable[T], work: Callable[[T], U], threads: int) -> Iterator[U]:
    """What work makes of each item, in their order, by a few threads; a few items are under way at a time."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[U]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def raise_bad_events(batch: EventBatch, wrong: dict[int, str], space: Space) -> NoReturn:
    """Where the first bad events of a batch are, what is wrong with them, and what they are."""
    place, lines = batch.file or "the events", list[str]()
    records = batch.malformed[:WRONG_SHOWN]
    for record, line in zip(records, _lines_of(batch.file, records), strict=True):
        lines.append(f"{place}{line}: {batch.why(record)}\n    {record[:EVENT_SHOWN]}")
    for row in sorted(wrong)[: WRONG_SHOWN - len(lines)]:
        read = batch.read.slice(row, 1).to_pylist()[0]
        event = {name: each for name, each in read.items() if each is not None}
        text = json.dumps(event, separators=(",", ":"), default=str, ensure_ascii=False)
        why = wrong[row] or _why(batch.rows.slice(row, 1), space)
        number = batch.line_of(batch.first + row, list(read.values()))
        at = f", row {batch.first + row}" if number is None else f":{number}"
        lines.append(f"{place}{at}: {why}\n    {text[:EVENT_SHOWN]}")
    raise BadRows(lines, "and more" if len(wrong) + len(batch.malformed) > len(lines) else "")


def _lines_of(path: str | None, records: Sequence[str]) -> list[str]:
    """Where records stand in their file, as `:7`; nothing where they span lines."""
    found, wanted = [""] * len(records), {record: at for at, record in reversed(list(enumerate(records)))}
    if path is None or not wanted:
        return found
    with pa.input_stream(path, compression="detect") as stream:
        for number, line in enumerate(io.BufferedReader(stream), 1):
            at = wanted.pop(line.decode(errors="replace").rstrip("\r\n"), None)
            if at is not None:
                found[at] = f":{number}"
                if not wanted:
                    break
    return found


def _why(row: pa.RecordBatch, space: Space) -> str:
    try:
        space.encode_batch(row)
    except EventError as error:
        return rule_of(error)
    raise AssertionError("a row that was refused is accepted")
