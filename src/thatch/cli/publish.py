"""`thatch publish`: publish events."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterable, Sequence
from os.path import isfile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from thatch.cli.arguments import AnsweredError
from thatch.cli.client_arguments import add_client, connected, run_client
from thatch.cli.event_lines import EventLines, GivenEvent, of_arguments, read_event
from thatch.cli.streams import OutputError
from thatch.errors import CallerError, ThatchError, Unavailable, shown
from thatch.region.region import Region
from thatch.space.json_values import readable, typed_event

if TYPE_CHECKING:
    from thatch.client.client import AsyncClient

GRACE_SECONDS = 0.3  # after Ctrl-C, for acknowledgements that are on their way


def add(commands: Any) -> None:
    command = commands.add_parser(
        "publish",
        help="publish events",
        description="Publish events, JSON objects one a line, from arguments or standard input.",
        epilog='example: thatch publish \'{"price": 12.5, "symbol": "A"}\'',
    )
    command.add_argument("events", nargs="*", metavar="JSON", help="an event (default: lines of standard input)")
    add_client(command, "the name of this client")
    command.add_argument("--advertise", default="TRUE", metavar="CLAUSE", help="where it publishes (default: anywhere)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    given = _of_arguments(options.events) if options.events else EventLines(sys.stdin)
    return run_client(_send_events(options, given))


def _of_arguments(given: list[str]) -> AsyncIterable[GivenEvent]:
    """All are read now: a mistake in them is said before a broker is looked for."""
    for text in given:
        if text.endswith((".csv", ".tsv", ".parquet")):
            kind = "Parquet" if text.endswith(".parquet") else "CSV"
            raise CallerError(f"{text} is no event: events are JSON, an object a line; {kind} is not read here")
        if not text.lstrip().startswith(("{", "[")) and (text.endswith((".json", ".jsonl")) or isfile(text)):
            raise CallerError(f"{text} is no event: the events of a file are given by `thatch publish < {text}`")
    return of_arguments([read_event(text, f"event {number}") for number, text in enumerate(given, 1)])


class _Sent(NamedTuple):
    place: str
    event: dict[str, Any]
    outcome: asyncio.Future[str]


class _Published:
    """What became of the events so far."""

    def __init__(self) -> None:
        self.waiting: deque[_Sent] = deque()
        self.count = self.count_before = 0  # published; before the first that was refused
        self.refused: list[tuple[_Sent, Exception]] = []
        self.unanswered: list[Exception] = []
        self.unread = ""  # why reading ended early

    def add(self, sent: _Sent) -> None:
        self.waiting.append(sent)
        self.collect()

    def collect(self) -> None:
        """Those that the broker has answered, in order."""
        while self.waiting and self.waiting[0].outcome.done():
            sent = self.waiting.popleft()
            error = sent.outcome.exception()
            if error is None:
                self.count += 1
            elif isinstance(error, CallerError):
                self.count_before = self.count_before if self.refused else self.count
                self.refused.append((sent, error))
            else:
                self.unanswered.append(error)  # type: ignore[arg-type]

    async def wait(self, seconds: float | None = None) -> None:
        if self.waiting:
            await asyncio.wait([each.outcome for each in self.waiting], timeout=seconds)
            self.collect()

    def interrupted(self) -> str:
        rest = len(self.waiting) + len(self.unanswered)
        refused = f", {len(self.refused):,} refused" if self.refused else ""
        return f"{self.count:,} published{refused}, {rest:,} read and not acknowledged"


async def _send_events(options: argparse.Namespace, given: AsyncIterable[GivenEvent]) -> None:
    so_far = _Published()
    async with connected(options) as client:
        await client.advertise(options.advertise, timeout_seconds=options.timeout)
        try:
            await _send_all(client, given, so_far, options.timeout)
            await so_far.wait()
        except asyncio.CancelledError:
            await so_far.wait(GRACE_SECONDS)
            print(so_far.interrupted(), file=sys.stderr, flush=True)
            raise
        advertised = client.space.where(options.advertise)
    refused = [
        f"{sent.place}: {_reason(error, sent.event, advertised, options.advertise)}" for sent, error in so_far.refused
    ]
    problem = _problem(so_far, refused)
    answer: dict[str, Any] = {"published": so_far.count, "refused": [*refused, *filter(None, [so_far.unread])]}
    if so_far.unanswered:
        answer["unacknowledged"] = len(so_far.unanswered)
    if problem:
        answer["error"] = problem
    done = f"{so_far.count:,} published"
    try:
        print(msgspec.json.encode(answer).decode() if options.json else done, flush=True)
    except OutputError as error:
        raise OutputError(f"{error}; {problem or done}") from None
    if problem:
        raise AnsweredError(problem)


async def _send_all(
    client: AsyncClient, given: AsyncIterable[GivenEvent], so_far: _Published, timeout_seconds: float
) -> None:
    """Until there are no more, or one cannot be sent."""
    try:
        async for place, each in given:
            try:
                event = typed_event(each, client.space, unknown=True)
            except CallerError as error:
                raise CallerError(f"{place}: {error}") from None
            so_far.add(_Sent(place, event, await client.post(event, timeout_seconds=timeout_seconds)))
    except (CallerError, Unavailable) as error:
        so_far.unread = str(error)


def _problem(so_far: _Published, refused: Sequence[str]) -> str:
    """What went wrong; "" if all was published."""
    ending = f". It ended there: {so_far.unread}" if so_far.unread else ""
    if so_far.unanswered:
        count = len(so_far.unanswered)
        what = "1 event was" if count == 1 else f"{count:,} events were"
        ending = f"{what} not acknowledged, and may be published all the same: {so_far.unanswered[0]}{ending}"
    if refused:
        what = "1 event was refused" if len(refused) == 1 else f"{len(refused):,} events were refused; the first"
        more = f". {ending}" if so_far.unanswered else ending
        return f"{what}: {refused[0]}; {so_far.count_before:,} published before it{more}"
    if so_far.unanswered:
        return f"{ending}; {so_far.count:,} published"
    return f"{so_far.unread}; {so_far.count:,} published before it" if so_far.unread else ""


def _reason(error: Exception, event: dict[str, Any], advertised: Region, clause: str) -> str:
    """Why an event was refused; of one that is outside the advertisement, which value is."""
    if not isinstance(error, ThatchError) or error.code != "advertisement":
        return str(error)
    from thatch.table.explain import why_not

    failures = why_not("", advertised, event).failures or ()
    values = [f"{name} is {readable(value)}" for each in failures for name, value in each.values.items()]
    return f"outside --advertise {shown(clause)}: {', '.join(values)}" if values else str(error)
