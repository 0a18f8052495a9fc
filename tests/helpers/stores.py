"""What is in a store."""

from __future__ import annotations

from typing import Any

from thatch.node.schema import peer_of
from thatch.node.store import Store
from thatch.protocol.records import PeerKey


def contents(store: Store) -> dict[str, Any]:
    """All that a store holds, before it is started."""
    events: dict[PeerKey, list[tuple[int, float, bytes]]] = {}
    query = "SELECT peer_kind, peer, number, at, event FROM events"
    for kind, name, *event in store._connection.execute(query):
        events.setdefault(peer_of(kind, name), []).append(tuple(event))
    for peer, found in events.items():
        assert [tuple(row) for row in store.stored(peer)] == [(number, at, len(data)) for number, at, data in found]
    return {
        "records": list(store.records()),
        "queues": [tuple(row) for row in store.queues()],
        "events": events,
        "received": store.received_up_to(),
        "image": store.image(),
        "statistics": store.statistics(),
        "about": (store.space, store.identity),
        "last place": store.records_written,
    }
