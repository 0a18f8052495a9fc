"""`thatch subscribe`: events that match a clause, as they come."""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from thatch.cli.client_arguments import add_client, connected, run_client
from thatch.cli.parser import whole_number
from thatch.cli.streams import check_output
from thatch.errors import CallerError
from thatch.where.reasons import why_empty

if TYPE_CHECKING:
    from thatch.client.client import AsyncClient
    from thatch.client.subscription import AsyncSubscription
    from thatch.protocol.wire import Lost

SETTLED = "settled: no matching event is missed from now on"


def add(commands: Any) -> None:
    command = commands.add_parser(
        "subscribe",
        help="print the events that match a clause, as they come",
        description="Subscribe at a broker and print each event as a line of JSON. With --durable, the broker keeps an "
        "event until this command has written it: then it is acknowledged.",
        epilog="example: thatch subscribe 'price < 20' --durable alerts --name ann",
    )
    command.add_argument("clause", metavar="CLAUSE", help="which events")
    add_client(command, "the name of this client; needed with --durable")
    command.add_argument("--durable", metavar="ID", help="keep events while this client is away")
    command.add_argument("--count", type=whole_number, metavar="N", help="stop after so many events")
    command.add_argument("--json", action="store_true", help="print JSON (events always are)")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.durable and not options.name:
        raise CallerError("--durable needs --name: the events are kept for the client of this name")
    if options.count is not None and options.count < 1:
        raise CallerError(f"--count is at least 1, not {options.count}")
    check_output()
    return run_client(_print_events(options))


async def _print_events(options: argparse.Namespace) -> None:
    from thatch.protocol.codec import event_json

    async with connected(options) as client:
        if client.space.where(options.clause).is_empty:
            why = why_empty(options.clause, client.space)
            print("thatch: no event can match this clause" + (f": {why}" if why else ""), file=sys.stderr, flush=True)
        subscription = await client.subscribe(options.clause, durable=options.durable, timeout_seconds=options.timeout)
        for lost in subscription.losses:
            _print_lost(lost)
        subscription.on_lost = _print_lost
        settled = _say_settled(client, subscription)
        count = 0
        async for event in subscription:
            print(event_json(event).decode(), flush=True)
            for notice in subscription.notices:
                print(f"thatch: {notice.count} events lost: {notice.reason}", file=sys.stderr, flush=True)
            subscription.notices.clear()
            count += 1
            if count == options.count:
                subscription.done()
                if settled is not None:
                    settled.cancel()
                return


def _print_lost(lost: Lost) -> None:
    """What a limit has cost a durable subscription."""
    since, until = (
        datetime.fromtimestamp(each, UTC).isoformat(timespec="seconds") for each in (lost.since, lost.until)
    )
    where = f"{lost.sender} kept them for {lost.receiver}" if lost.sender else "several brokers kept them"
    print(
        f"thatch: up to {lost.count} events lost to a limit: {where}; they had come there from {since} to {until}",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def _say_settled(client: AsyncClient, subscription: AsyncSubscription) -> asyncio.Task[None] | None:
    """Now; and once more, in a task, when brokers that are away are back."""

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def say_later() -> None:
        await client.wait_settled(subscription, timeout_seconds=None)
        say(SETTLED)

    if not subscription.missing:
        say(SETTLED)
        return None
    names = ", ".join(subscription.missing)
    say(f"settled except {names}, which cannot be reached: events that are published there are missed until then")
    return asyncio.create_task(say_later())
