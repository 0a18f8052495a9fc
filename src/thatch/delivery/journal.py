"""What delivery asks of a store, and the rows that it reads from it.

    what is written ─▶ at once a ticket │ later: all up to the ticket is on disk ─▶ Driver.committed(ticket)

Writing returns at once. Whoever speaks of what was written takes the `ticket` of that moment and says nothing before
the driver has heard that it is on disk. Writes take effect in the order in which they were asked for; a crash keeps all
up to some ticket and nothing of what came after it. `node/store.py` is one, the simulator has another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from thatch.protocol.records import PeerKey, RecordChange

Rows = list[tuple[int, bytes]]  # number, encoded event
Page = Callable[[Rows, bool], None]


class QueueRow(NamedTuple):
    """A durable subscription: its limits, and how many events they have cost it."""

    peer: PeerKey
    bytes_max: int
    seconds_max: float
    lost: int


class StoredRow(NamedTuple):
    """An event that is kept for a peer, without the event."""

    number: int
    at: float
    size: int


class Journal(Protocol):
    """A store, as delivery sees it."""

    identity: str
    is_full: bool  # it takes what is written, but nothing reaches the disk before there is room

    @property
    def ticket(self) -> int:
        """The ticket of what was asked for last."""

    # --- What there is, read before anything is written --------------------------------------------------------------

    @property
    def is_started(self) -> bool:
        """Whether it writes: from then on nothing is read but pages of events."""

    def queues(self) -> list[QueueRow]:
        """The durable subscriptions."""

    def stored(self, peer: PeerKey) -> Iterable[StoredRow]:
        """The events that are kept for a peer, by number."""

    def received_up_to(self) -> dict[PeerKey, tuple[str, int]]:
        """By peer: the store behind the link, and the number that came from there last."""

    # --- What is to be written ---------------------------------------------------------------------------------------

    def next_number(self) -> int:
        """A number for an event: higher than all before, in all lives of the store."""

    def next_numbers(self, count: int) -> range:
        """Some of them."""

    def keep(self, records: tuple[RecordChange, ...]) -> None:
        """What the broker is to know at its next start, all or nothing."""

    def put_queue(self, row: QueueRow) -> None:
        """A durable subscription, in place of the one of this name."""

    def drop_queue(self, peer: PeerKey) -> None:
        """A durable subscription, and the events that are kept for it."""

    def append(self, peer: PeerKey, number: int, at: float, event: bytes) -> None:
        """Keep an event for a peer."""

    def discard(self, peer: PeerKey, number: int) -> None:
        """The events that are kept for a peer, up to this number, are no longer needed."""

    def note_received(self, peer: PeerKey, store: str, number: int) -> None:
        """What came from a neighbour up to this number is here."""

    def read(self, peer: PeerKey, after: int, count: int, page: Page) -> None:
        """Have `page` called with the next events for a peer, and whether all that was written before was seen."""
