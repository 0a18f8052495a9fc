"""A node as a process: until a signal, or until its store fails."""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
import socket
from importlib.util import find_spec

from thatch.errors import ConfigError, OldCopyError, StoreError
from thatch.node.config import Config
from thatch.node.damage import sentence_of
from thatch.node.logs import begin
from thatch.node.server import Node


def run(config: Config) -> None:
    check_addresses(config)
    begin(config.log)
    if find_spec("uvloop"):
        import uvloop

        uvloop.run(_serve(config))
    else:
        asyncio.run(_serve(config))


def check_addresses(config: Config) -> None:
    """Whether the broker can listen where it should, before its store is opened."""
    for flag, listen in (("--listen", config.client), ("--overlay", config.overlay)):
        place = f"cannot listen on {listen.host}:{listen.port}"
        try:
            found = socket.getaddrinfo(listen.host or None, listen.port, 0, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)
        except (OSError, UnicodeError):  # the latter of what no name can be
            raise ConfigError(f"{place}: no host has the name {listen.host!r}") from None
        for family, kind, protocol, _, address in found:
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:
                        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    probe.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    what = f"port {listen.port} is taken: another broker? {flag} HOST:PORT names another one"
                    raise ConfigError(f"{place}: {what}") from None
                if error.errno == errno.EADDRNOTAVAIL and len(found) == 1:
                    raise ConfigError(f"{place}: this machine has no address {listen.host}") from None
                if error.errno == errno.EACCES:
                    raise ConfigError(f"{place}: this user may not take a port below 1024") from None


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
    if isinstance(node.failure, OldCopyError):
        raise node.failure
    if node.failure is not None:
        why = sentence_of(node.failure)
        raise StoreError(f"store {config.store_path}: cannot be written any more: {why}") from node.failure
