"""`thatch broker`, `thatch subscribe`, `thatch publish`: a node, and a client for the terminal."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from thatch.errors import CallerError, ConfigError, ThatchError
from thatch.space.json_values import read_json, typed_event
from thatch.space.space import Space

URL = "ws://127.0.0.1:7878"


def add_node_commands(commands: Any) -> None:
    broker = commands.add_parser(
        "broker",
        help="a broker that runs until it is stopped",
        description="One broker of a network: clients and curl on one port, neighbours on another.",
        epilog="example: thatch broker --name B1 --space 'price double not null 0..1000, symbol string'",
    )
    broker.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help="a TOML file; flags win over it")
    broker.add_argument("--name", help="the name of the broker, unique in the network")
    broker.add_argument("--space", metavar="SPACE", help="the space, written out")
    broker.add_argument("--store", metavar="FILE", help="where its state is kept (default NAME.thatch)")
    broker.add_argument("--listen", metavar="HOST:PORT", help="for clients (default 127.0.0.1:7878)")
    broker.add_argument("--overlay", metavar="HOST:PORT", help="for neighbours (default 127.0.0.1:7879)")
    broker.add_argument("--neighbour", action="append", default=[], metavar="NAME=URL", help="a neighbour to dial")
    broker.add_argument("--routing", help="advertisements (default), subscriptions or events")
    broker.add_argument("--log", help="text (default) or json")
    broker.add_argument(
        "--exposed", action="store_true", default=None, help="listen beyond loopback: no access control"
    )
    broker.add_argument("--print-config", action="store_true", help="print the settings that would be used")
    broker.set_defaults(run=_broker)

    subscribe = commands.add_parser(
        "subscribe",
        help="events that match a clause, as they come",
        description="Subscribe at a broker and print each event as a line of JSON.",
        epilog="example: thatch subscribe 'price < 20' --durable alerts --name ann",
    )
    subscribe.add_argument("clause", metavar="CLAUSE", help="which events")
    subscribe.add_argument("--url", default=URL, help=f"the broker (default {URL})")
    subscribe.add_argument("--name", help="the name of this client; needed with --durable")
    subscribe.add_argument("--durable", metavar="ID", help="keep events while this client is away")
    subscribe.add_argument("--count", type=int, metavar="N", help="stop after so many events")
    subscribe.set_defaults(run=_subscribe)

    publish = commands.add_parser(
        "publish",
        help="publish events",
        description="Publish events, JSON objects one a line, from arguments or standard input.",
        epilog='example: thatch publish \'{"price": 12.5, "symbol": "A"}\'',
    )
    publish.add_argument("events", nargs="*", metavar="JSON", help="an event (default: lines of standard input)")
    publish.add_argument("--url", default=URL, help=f"the broker (default {URL})")
    publish.add_argument("--name", help="the name of this client")
    publish.add_argument("--advertise", default="TRUE", metavar="CLAUSE", help="where it publishes (default: anywhere)")
    publish.set_defaults(run=_publish)
    for command in (broker, subscribe, publish):
        command.add_argument("--json", action="store_true", help="print JSON (events always are)")


def _broker(options: argparse.Namespace) -> int:
    from thatch.node.config import read, to_toml
    from thatch.node.run import run

    flags: dict[str, Any] = {}
    for key in ("name", "space", "store", "routing", "log", "exposed"):
        if getattr(options, key) is not None:
            flags[key] = getattr(options, key)
    for key, text in (("client", options.listen), ("overlay", options.overlay)):
        if text is not None:
            flags[f"{key}.host"], flags[f"{key}.port"] = _address(text)
    for text in options.neighbour:
        name, equals, url = text.partition("=")
        if not equals:
            raise ConfigError(f"--neighbour NAME=URL, not {text!r}")
        flags.setdefault("neighbours", {})[name] = url
    config = read(options.config, flags)
    if options.print_config:
        print(msgspec.json.encode(config).decode() if options.json else to_toml(config).rstrip())
        return 0
    run(config)
    return 0


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit():
        raise ConfigError(f"an address is HOST:PORT, not {text!r}")
    return host, int(port)


def _subscribe(options: argparse.Namespace) -> int:
    if options.durable and not options.name:
        raise CallerError("--durable needs --name: the events are kept for the client of this name")
    return asyncio.run(_reported(_print_events(options)))


async def _reported(work: Any) -> int:
    try:
        await work
    except ThatchError as error:
        if isinstance(error, CallerError):
            raise
        raise CallerError(str(error)) from None
    return 0


async def _print_events(options: argparse.Namespace) -> None:
    from thatch.client.client import connect
    from thatch.node.http import event_json

    async with await connect(options.url, options.name) as client:
        subscription = await client.subscribe(options.clause, durable=options.durable)
        print("settled: no matching event is missed from now on", file=sys.stderr, flush=True)
        count = 0
        async for event in subscription:
            print(event_json(event).decode(), flush=True)
            for notice in subscription.notices:
                print(f"thatch: {notice.count} events lost: {notice.reason}", file=sys.stderr, flush=True)
            subscription.notices.clear()
            count += 1
            if count == options.count:
                subscription.done()
                return


def _publish(options: argparse.Namespace) -> int:
    return asyncio.run(_reported(_send_events(options)))


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
