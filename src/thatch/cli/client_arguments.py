"""What the commands that are clients of a broker take, and how they run."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from thatch.cli.arguments import OK
from thatch.errors import shown

if TYPE_CHECKING:
    from thatch.client.client import AsyncClient

URL = "ws://127.0.0.1:7878"
TIMEOUT_SECONDS = 10.0
WATCH_SECONDS = 0.2  # between looks at the connection
SHOWN_AFTER = 0.2  # seconds of waiting for a broker until that is said


def add_client(command: argparse.ArgumentParser, about_name: str) -> None:
    command.add_argument("--url", default=URL, help=f"the broker (default {URL})")
    command.add_argument("--name", help=about_name)
    command.add_argument(
        "--timeout", type=_seconds, default=TIMEOUT_SECONDS, metavar="SECONDS",
        help=f"how long to wait for the broker to answer (default {TIMEOUT_SECONDS:g})",
    )  # fmt: skip


def _seconds(text: str) -> float:
    """A number of seconds of an option."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is expected, not {shown(text)}")
    return seconds


def run_client(work: Coroutine[Any, Any, None]) -> int:
    """Run the coroutine of a client to its end, and return the exit status."""
    asyncio.run(work)
    return OK


@asynccontextmanager
async def connected(options: argparse.Namespace) -> AsyncIterator[AsyncClient]:
    """The client; a line says when a broker keeps it waiting."""
    from thatch.client.client import connect

    waiting = asyncio.get_running_loop().call_later(SHOWN_AFTER, _show_waiting, options.url)
    try:
        client = await connect(options.url, options.name, options.timeout)
    finally:
        waiting.cancel()
    async with client:
        watch = asyncio.create_task(_watch(client))
        try:
            yield client
        finally:
            watch.cancel()


async def _watch(client: AsyncClient) -> None:
    """Say when the connection is lost, and when it is there again."""
    was_connected = True
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        if client.is_connected != was_connected and client.failure is None:
            was_connected = client.is_connected
            what = "connected again to" if was_connected else "lost the broker at"
            ending = "" if was_connected else ": trying again"
            print(f"thatch: {what} {client.url}{ending}", file=sys.stderr, flush=True)


def _show_waiting(url: str) -> None:
    print(f"waiting for a broker at {url} …", file=sys.stderr, flush=True)
