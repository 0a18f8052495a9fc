"""The client, for programs: async and blocking. No server code is imported with it.

In reading order:

    finding         where a broker is, and why it cannot be reached
    waiting         limits on waits, and changes that are waited for
    subscription    a client's subscription: an iterator over its events
    outbox          what is said, gathered into frames
    unacknowledged  events that are published and not acknowledged
    durable         durable subscriptions: asked for until the broker answers
    client          `AsyncClient`, `connect`: for programs with an event loop
    blocking        `BlockingClient`, `connect_blocking`: for programs with threads
"""

from thatch.errors import imports_of_extra

with imports_of_extra("client"):
    from thatch.client.blocking import BlockingClient, connect_blocking
    from thatch.client.client import AsyncClient, connect

__all__ = ["AsyncClient", "BlockingClient", "connect", "connect_blocking"]
