"""What a broker has its driver keep: one type of record for each kind of thing, and the key that each is kept under.

    the broker ── Persist(records) ─▶ its driver ─▶ the store          each takes the place of the one with its key
    the broker ◀── its records, in the order in which they were put ── the store

A key that names a peer says which kind of peer: a client and a neighbour of one name are two. A broker may have some
hundred thousand records; none is part of a cycle, so the garbage collector does not look at them.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal, NamedTuple

import msgspec

from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS

PeerKind = Literal["client", "neighbour", "durable queue"]
CLIENT: Final = "client"
NEIGHBOUR: Final = "neighbour"
DURABLE_QUEUE: Final = "durable queue"  # of a durable subscription: a client inside the node


class PeerKey(NamedTuple):
    """What a link leads to."""

    kind: PeerKind
    name: str

    @property
    def is_client(self) -> bool:
        """Whether the broker treats it as a client."""
        return self.kind != NEIGHBOUR


# --- Keys ------------------------------------------------------------------------------------------------------------


class SubscriptionKey(msgspec.Struct, frozen=True, gc=False):
    table: ClassVar[str] = SUBSCRIPTIONS

    peer: PeerKey  # that it came from
    id: str


class AdvertisementKey(msgspec.Struct, frozen=True, gc=False):
    table: ClassVar[str] = ADVERTISEMENTS

    peer: PeerKey  # that it came from
    id: str


class PreservedKey(msgspec.Struct, frozen=True, gc=False):
    peer: PeerKey  # to which it stays forwarded
    id: str


class LinkKey(msgspec.Struct, frozen=True, gc=False):
    peer: PeerKey


class SpaceKey(msgspec.Struct, frozen=True, gc=False):
    is_open: bool


EntryKey = SubscriptionKey | AdvertisementKey
RecordKey = EntryKey | PreservedKey | LinkKey | SpaceKey


# --- Records ---------------------------------------------------------------------------------------------------------


class SubscriptionRecord(msgspec.Struct, frozen=True, gc=False):
    """A subscription that came over a link."""

    peer: PeerKey
    id: str
    where: str
    expires: float | None = None

    @property
    def key(self) -> SubscriptionKey:
        return SubscriptionKey(self.peer, self.id)


class AdvertisementRecord(msgspec.Struct, frozen=True, gc=False):
    """An advertisement that came over a link."""

    peer: PeerKey
    id: str
    where: str
    expires: float | None = None

    @property
    def key(self) -> AdvertisementKey:
        return AdvertisementKey(self.peer, self.id)


class PreservedRecord(msgspec.Struct, frozen=True, gc=False):
    """A subscription that has left, and stays forwarded to a neighbour."""

    peer: PeerKey
    id: str
    where: str
    hops_left: dict[str, int] = {}  # by advertisement: how far it is still to be withdrawn

    @property
    def key(self) -> PreservedKey:
        return PreservedKey(self.peer, self.id)


class LinkRecord(msgspec.Struct, frozen=True, gc=False):
    """A link, and whether events that go over it are kept until the peer has them."""

    peer: PeerKey
    is_durable: bool = False

    @property
    def key(self) -> LinkKey:
        return LinkKey(self.peer)


class SpaceRecord(msgspec.Struct, frozen=True, gc=False):
    """The space after it has grown: if `is_open`, what events and clauses may use; else with what is proposed."""

    is_open: bool
    space: str  # JSON
    step: int = 0
    origin: str = ""  # the broker that proposed it
    wanted: str = ""  # JSON: what an operator wants, and has not opened

    @property
    def key(self) -> SpaceKey:
        return SpaceKey(self.is_open)


class Drop(msgspec.Struct, frozen=True, gc=False):
    """The record with this key is no more."""

    key: RecordKey


EntryRecord = SubscriptionRecord | AdvertisementRecord
Record = EntryRecord | PreservedRecord | LinkRecord | SpaceRecord
RecordChange = Record | Drop


def entry_record(table: str, peer: PeerKey, id: str, where: str, expires: float | None = None) -> EntryRecord:
    """The record of what came over a link, for one of the two tables of the overlay."""
    if table == SUBSCRIPTIONS:
        return SubscriptionRecord(peer, id, where, expires)
    return AdvertisementRecord(peer, id, where, expires)


def entry_key(table: str, peer: PeerKey, id: str) -> EntryKey:
    return SubscriptionKey(peer, id) if table == SUBSCRIPTIONS else AdvertisementKey(peer, id)
