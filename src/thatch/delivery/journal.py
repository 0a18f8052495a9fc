"""What delivery asks of a store, and the rows that it reads from it.

    what is written ─▶ at once a ticket │ later: all up to the ticket is on disk ─▶ Driver.committed(ticket)

Writing returns at once. Whoever speaks of what was written takes the `ticket` of that moment and says nothing before
the driver has heard that it is on disk. Writes take effect in the order in which they were asked for; a crash keeps all
up to some ticket and nothing of what came after it. `node/store.py` is one, the simulator has another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from thatch.delivery.clock import Stamp
from thatch.protocol.records import PeerKey, RecordChange

Rows = list[tuple[int, bytes]]  # number, encoded event
Page = Callable[[Rows, bool], None]
ASKED, SUSPECTED, GAP = range(3)  # an entry of a stream: an event that was asked for, or may be; that some are lost


class QueueRow(NamedTuple):
    """A durable subscription: its limits, and how many events they have cost it."""

    peer: PeerKey
    bytes_max: int
    seconds_max: float
    lost: int
    expires: float | None = None  # of interest that a neighbour has returned: when nodes have run for so long


class Span(NamedTuple):
    """The entries of one kind between two numbers, and these too."""

    first: int
    last: int
    entry: int


class StoredRow(NamedTuple):
    """An entry of a stream, without the event."""

    number: int
    at: float  # when it came (clock.py)
    ran: float
    entry: int
    size: int
    gap: bytes | None = None  # if it is one


class LifeRow(NamedTuple):
    """A life of the store (history.py)."""

    ordinal: int
    id: str
    at: float  # when it began; 0 if that is not known
    cause: str  # "start", "rollback", or "restore" and its mark
    since: float | None  # it began in the past: from then on something is missing


class ReceivedRow(NamedTuple):
    """Up to which number a life of a neighbour's store has come."""

    peer: PeerKey
    life: str
    number: int
    place: int  # of the life, in the order in which they came


class ConfirmedRow(NamedTuple):
    """Up to which number of a life of this store a neighbour has said that it is on its disk."""

    peer: PeerKey
    life: str
    number: int


class NeighbourRow(NamedTuple):
    """What is known of a neighbour."""

    name: str
    state: str  # "known" (it has come), "accepting" or "accepted" (by an operator), "forgotten"
    store: str = ""  # the id of its store
    life: str = ""  # the last one of its store
    knows: str = ""  # the last life of this store that it has on disk
    returned: str = ""  # the last life of this store that it has returned interest to
    restored: str = ""  # marks of the restores of its store that were admitted, with blanks between


class AttachmentRow(NamedTuple):
    """A neighbour that an operator has attached."""

    name: str
    instead_of: str  # a neighbour that is lost; "": it was forgotten since
    url: str  # where it is dialled; "": it dials


class GapRow(NamedTuple):
    """An interval that was announced: what was acknowledged in it may be missing."""

    place: int
    peer: PeerKey
    side: str  # "in": what came from a neighbour; "out": what was for it, or for a durable subscription
    since: float
    until: float
    missing: int | None  # events; None: nobody knows how many


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

    def lives(self) -> list[LifeRow]:
        """The lives of the store, in order; the last one is the present."""

    def received(self) -> list[ReceivedRow]:
        """What came from neighbours, by life of their stores."""

    def confirmed(self) -> list[ConfirmedRow]:
        """What neighbours have on their disks, by life of this store."""

    def neighbours(self) -> list[NeighbourRow]:
        """What is known of neighbours."""

    def gaps(self) -> list[GapRow]:
        """The intervals that were announced."""

    def attachments(self) -> list[AttachmentRow]:
        """The neighbours that an operator has attached."""

    def moved(self) -> dict[str, str]:
        """Durable subscriptions that were moved to another broker: its address, by their names."""

    # --- What is to be written ---------------------------------------------------------------------------------------

    def keep(self, records: tuple[RecordChange, ...]) -> None:
        """What the broker is to know at its next start, all or nothing."""

    def put_queue(self, row: QueueRow) -> None:
        """A durable subscription, in place of the one of this name."""

    def drop_queue(self, peer: PeerKey) -> None:
        """A durable subscription, and the events that are kept for it."""

    def append(self, peer: PeerKey, number: int, stamp: Stamp, entry: int, event: bytes) -> None:
        """Keep an event for a peer."""

    def discard(self, peer: PeerKey, number: int) -> None:
        """The events that are kept for a peer, up to this number, are no longer needed."""

    def put_gap_entry(self, peer: PeerKey, gone: Sequence[Span], number: int, stamp: Stamp, gap: bytes) -> None:
        """A gap stands in place of entries that go: all or nothing."""

    def put_life(self, row: LifeRow) -> None:
        """A life, in place of the one with its ordinal."""

    def note_received(self, row: ReceivedRow) -> None:
        """What came from a life of a neighbour up to this number is here."""

    def drop_received(self, peer: PeerKey, place: int) -> None:
        """The lives of a neighbour up to this place are no longer needed."""

    def note_confirmed(self, row: ConfirmedRow) -> None:
        """What went to a neighbour up to this number is on its disk."""

    def drop_confirmed(self, peer: PeerKey, life: str) -> None:
        """What a neighbour has of a life is no longer asked for."""

    def put_neighbour(self, row: NeighbourRow) -> None:
        """What is known of a neighbour, in place of what was known."""

    def put_gap(self, row: GapRow) -> None:
        """An interval, in place of the one at its place."""

    def put_attachment(self, row: AttachmentRow) -> None:
        """A neighbour that was attached, in place of what was known of it."""

    def drop_attachment(self, name: str) -> None:
        """What is known of a neighbour that was attached is no longer needed."""

    def put_moved(self, name: str, url: str) -> None:
        """A durable subscription was moved to a broker at an address; "": it is here."""

    def copy(self, source: PeerKey, target: PeerKey, last: int) -> None:
        """Keep for one peer all events that are kept for another one, too, as if they were asked for: the last event
        under this number, the one before it under the one below, and so on."""

    def read(self, peer: PeerKey, after: int, count: int, page: Page) -> None:
        """Have `page` called with the next events for a peer, and whether all that was written before was seen."""
