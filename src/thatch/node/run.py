"""A node as a process: until a signal, or until its store fails."""

from __future__ import annotations

import asyncio
import gc
import signal
from importlib.util import find_spec

from thatch.errors import StoreError
from thatch.node.config import Config
from thatch.node.damage import sentence_of
from thatch.node.logs import begin
from thatch.node.server import Node


def run(config: Config) -> None:
    begin(config.log)
    if find_spec("uvloop"):
        import uvloop

        uvloop.run(_serve(config))
    else:
        asyncio.run(_serve(config))


async def _serve(config: Config) -> None:
    gc.disable()
    try:
        node = Node(config)
        gc.freeze()  # what was restored stays: looking at it again and again would hold up events
    finally:
        gc.enable()
    gc.set_threshold(20_000, 20, 100)  # a frame of events is thousands of objects that go together
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, node.is_over.set)
    try:
        await node.start()
        await node.is_over.wait()
    finally:
        await node.stop()
    if node.failure is not None:
        why = sentence_of(node.failure)
        raise StoreError(f"store {config.store_path}: cannot be written any more: {why}") from node.failure
