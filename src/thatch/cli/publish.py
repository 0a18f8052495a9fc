"""`thatch publish`: publish events."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from itertools import chain, islice
from os.path import isfile
from typing import Any, NamedTuple

import msgspec

from thatch.cli.client_arguments import add_client, connected, run_client
from thatch.cli.terminal import is_terminal
from thatch.errors import CallerError, ThatchError, shown
from thatch.region.region import Region
from thatch.space.json_values import read_json, readable, typed_event


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
    return run_client(_send_events(options, _objects(options.events)))


class _Given(NamedTuple):
    """An event, and where it was given."""

    place: str
    event: dict[str, Any]


class _Sent(NamedTuple):
    place: str
    event: dict[str, Any]
    outcome: asyncio.Future[str]


def _objects(given: list[str]) -> Iterator[_Given]:
    """The events. Those of arguments are all read now, and of standard input the first: a mistake in them is said
    before a broker is looked for."""
    if given:
        for text in given:
            if text.endswith((".csv", ".tsv", ".parquet")):
                kind = "Parquet" if text.endswith(".parquet") else "CSV"
                raise CallerError(f"{text} is no event: events are JSON, an object a line; {kind} is not read here")
            if not text.lstrip().startswith(("{", "[")) and (text.endswith((".json", ".jsonl")) or isfile(text)):
                raise CallerError(f"{text} is no event: the events of a file are given by `thatch publish < {text}`")
        return iter([_read(text, f"event {number}") for number, text in enumerate(given, 1)])
    if is_terminal(sys.stdin):
        print("events, an object in JSON a line; Ctrl-D ends", file=sys.stderr, flush=True)
    lines = (
        _read(text.rstrip(b"\r\n"), f"line {number}")
        for number, text in enumerate(_lines(sys.stdin), 1)
        if text.strip()
    )
    return chain(list(islice(lines, 1)), lines)


def _lines(file: Any) -> Iterator[bytes]:
    """The lines of standard input as bytes: what is not UTF-8 is refused with its line."""
    for line in getattr(file, "buffer", file):
        yield line if isinstance(line, bytes) else line.encode()


def _read(text: str | bytes, place: str) -> _Given:
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise CallerError(f"{place}: not UTF-8 text: {error.reason} at byte {error.start + 1}") from None
    return _Given(place, read_json(text, place))


async def _send_events(options: argparse.Namespace, given: Iterator[_Given]) -> None:
    sent: list[_Sent] = []
    unread = ""  # why reading ended early
    async with connected(options) as client:
        await client.advertise(options.advertise, timeout_seconds=options.timeout)
        try:
            for place, each in given:
                try:
                    event = typed_event(each, client.space, unknown=True)
                except CallerError as error:
                    raise CallerError(f"{place}: {error}") from None
                sent.append(_Sent(place, event, await client.post(event, timeout_seconds=options.timeout)))
        except CallerError as error:
            unread = str(error)
        outcomes = await asyncio.gather(*(each.outcome for each in sent), return_exceptions=True)
        advertised = client.space.where(options.advertise)
    refused = [
        f"{each.place}: {_reason(outcome, each.event, advertised, options.advertise)}"
        for each, outcome in zip(sent, outcomes, strict=True)
        if isinstance(outcome, Exception)
    ]
    published = len(sent) - len(refused)
    if options.json:
        answer = {"published": published, "refused": [*refused, unread] if unread else refused}
        print(msgspec.json.encode(answer).decode())
    else:
        print(f"{published:,} published")
    if refused:
        before = next(at for at, outcome in enumerate(outcomes) if isinstance(outcome, Exception))
        what = "1 event was refused" if len(refused) == 1 else f"{len(refused):,} events were refused; the first"
        ending = f". It ended there: {unread}" if unread else ""
        raise CallerError(f"{what}: {refused[0]}; {before:,} published before it{ending}")
    if unread:
        raise CallerError(f"{unread}; {published:,} published before it")


def _reason(error: Exception, event: dict[str, Any], advertised: Region, clause: str) -> str:
    """Why an event was refused; of one that is outside the advertisement, which value is."""
    if not isinstance(error, ThatchError) or error.code != "advertisement":
        return str(error)
    from thatch.table.explain import why_not

    failures = why_not("", advertised, event).failures or ()
    values = [f"{name} is {readable(value)}" for each in failures for name, value in each.values.items()]
    return f"outside --advertise {shown(clause)}: {', '.join(values)}" if values else str(error)
