"""One broker in the real world: its server, its store, and the client that talks to it."""

from thatch.node.blocking import BlockingClient, connect_blocking
from thatch.node.client import AsyncClient, connect

__all__ = ["AsyncClient", "BlockingClient", "connect", "connect_blocking"]
