"""`thatch publish`: publish events."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import msgspec

from thatch.cli.client_arguments import add_client, connected, run_client
from thatch.cli.terminal import is_terminal
from thatch.errors import CallerError
from thatch.space.json_values import read_json, typed_event


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


def _objects(given: list[str]) -> Iterator[dict[str, Any]]:
    """The events. Those of arguments are all read now, and of standard input the first: a mistake in them is said
    before a broker is looked for."""
    if given:
        return iter([read_json(text, f"event {number}") for number, text in enumerate(given, 1)])
    if is_terminal(sys.stdin):
        print("events, an object in JSON a line; Ctrl-D ends", file=sys.stderr, flush=True)
    lines = (
        read_json(text.rstrip("\r\n"), f"line {number}") for number, text in enumerate(sys.stdin, 1) if text.strip()
    )
    return chain(list(islice(lines, 1)), lines)


async def _send_events(options: argparse.Namespace, objects: Iterator[dict[str, Any]]) -> None:
    async with connected(options) as client:
        await client.advertise(options.advertise)
        futures: list[asyncio.Future[str]] = []
        for each in objects:
            futures.append(await client.post(typed_event(each, client.space, unknown=True)))
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
    refused = [str(each) for each in outcomes if isinstance(each, Exception)]
    published = len(futures) - len(refused)
    if options.json:
        print(msgspec.json.encode({"published": published, "refused": refused}).decode())
    else:
        print(f"{published:,} published")
    if refused:
        what = "1 event was refused" if len(refused) == 1 else f"{len(refused):,} events were refused; the first"
        raise CallerError(f"{what}: {refused[0]}")
