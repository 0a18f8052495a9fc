"""`thatch publish`: publish events."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from thatch.cli.client_arguments import add_client, run_client
from thatch.errors import CallerError
from thatch.space.json_values import read_json, typed_event
from thatch.space.space import Space


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
    return run_client(_send_events(options))


async def _send_events(options: argparse.Namespace) -> None:
    from thatch.client.client import connect

    async with await connect(options.url, options.name) as client:
        await client.advertise(options.advertise)
        futures: list[asyncio.Future[str]] = []
        for place, line in _lines(options.events):
            futures.append(await client.post(_event(line, place, client.space)))
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    refused = [str(each) for each in outcomes if isinstance(each, Exception)]
    published = len(futures) - len(refused)
    if options.json:
        print(msgspec.json.encode({"published": published, "refused": refused}).decode())
    else:
        print(f"{published:,} published")
    if refused:
        raise CallerError(f"{len(refused):,} events were refused; the first: {refused[0]}")


def _lines(given: list[str]) -> Iterator[tuple[str, str]]:
    if given:
        yield from ((f"event {number}", text) for number, text in enumerate(given, 1))
        return
    yield from ((f"line {number}", text) for number, text in enumerate(sys.stdin, 1) if text.strip())


def _event(text: str, place: str, space: Space) -> dict[str, Any]:
    return typed_event(read_json(text, place), space, unknown=True)
