"""The client, for programs: async and blocking. No server code is imported with it.

In reading order:

    finding       where a broker is, and why it cannot be reached
    subscription  a client's subscription: an iterator over its events
    client        `AsyncClient`, `connect`: for programs with an event loop
    blocking      `BlockingClient`, `connect_blocking`: for programs with threads
"""

from thatch.errors import imports_of_extra

with imports_of_extra("client"):
    from thatch.client.blocking import BlockingClient, connect_blocking
    from thatch.client.client import AsyncClient, connect

__all__ = ["AsyncClient", "BlockingClient", "connect", "connect_blocking"]
