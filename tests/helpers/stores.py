"""What is in a store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from thatch.delivery.clock import Stamp
from thatch.delivery.history import History
from thatch.delivery.journal import ASKED
from thatch.node.schema import peer_of
from thatch.node.store import Store
from thatch.protocol.records import PeerKey

_numbers: WeakKeyDictionary[Store, Iterator[int]] = WeakKeyDictionary()


def next_number(store: Store) -> int:
    """A number for an event, of the present life of a store: higher than those before."""
    if store not in _numbers:
        _numbers[store] = count(History(store.lives()).first_number + 1)
    return next(_numbers[store])


def keep(store: Store, peer: PeerKey, number: int, at: float, event: bytes) -> None:
    """An event that was asked for, at a time at which nodes had run for as long."""
    store.append(peer, number, Stamp(at, at), ASKED, event)


def contents(store: Store) -> dict[str, Any]:
    """All that a store holds, before it is started."""
    events: dict[PeerKey, list[tuple[int, float, bytes]]] = {}
    query = "SELECT peer_kind, peer, number, at, event FROM events"
    for kind, name, *event in store._connection.execute(query):
        events.setdefault(peer_of(kind, name), []).append(tuple(event))
    for peer, found in events.items():
        rows = [(row.number, row.at, row.size) for row in store.stored(peer)]
        assert rows == [(number, at, len(data)) for number, at, data in found]
    return {
        "records": list(store.records()),
        "queues": [tuple(row) for row in store.queues()],
        "events": events,
        "received": store.received(),
        "confirmed": store.confirmed(),
        "neighbours": store.neighbours(),
        "gaps": store.gaps(),
        "image": store.image(),
        "statistics": store.statistics(),
        "about": (store.space, store.identity),
        "last place": store.records_written,
    }
