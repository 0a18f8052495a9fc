"""What the commands that are clients of a broker take, and how they run."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine
from typing import Any

from thatch.cli.arguments import OK

URL = "ws://127.0.0.1:7878"


def add_client(command: argparse.ArgumentParser, about_name: str) -> None:
    command.add_argument("--url", default=URL, help=f"the broker (default {URL})")
    command.add_argument("--name", help=about_name)


def run_client(work: Coroutine[Any, Any, None]) -> int:
    """Run the coroutine of a client to its end, and return the exit status."""
    asyncio.run(work)
    return OK
