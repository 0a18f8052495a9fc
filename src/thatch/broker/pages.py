"""Pages: what differs between two sides of a link is sent a part at a time, so that no message grows with it.

    the sender     UnsentPages     of a table: ids that are still to be sent     ── Page, Page, … Synced ─▶
                   SentPages       of a link: what `Synced` speaks about
    the receiver   ReceivedPages   of a link: ids that came, and clauses that stay until `Synced`

Pages add and widen only. If one took something away, what is to take its place might be on a later page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from thatch.protocol.digest import bucket_of
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.protocol.messages import Listing

CHARACTERS_MAX = 2**20  # of the ids and clauses of a page, unless it has one entry
ENTRIES_MAX = 1_000  # of a page: the receiver works them in without a pause


class Room:
    """What is left of a page."""

    def __init__(self, characters: int, entries: int = ENTRIES_MAX) -> None:
        self._characters, self._entries, self._is_empty = characters, entries, True

    def has(self, id: str, where: str) -> bool:
        """Whether one more entry is for this page; the first one is."""
        return self._is_empty or (self._entries > 0 and len(id) + len(where) <= self._characters)

    def fill(self, id: str, where: str) -> None:
        self._is_empty = False
        self._entries -= 1
        self._characters -= len(id) + len(where)


class Unlisted:
    """Ids that a neighbour is still to be sent, the oldest first: one that changes all the time holds up no other."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._order = deque(ids)
        self._ids = set(self._order)

    def __bool__(self) -> bool:
        return bool(self._order)

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def add(self, id: str) -> None:
        if id not in self._ids:
            self._ids.add(id)
            self._order.append(id)

    @property
    def first(self) -> str:
        return self._order[0]

    def drop_first(self) -> None:
        self._ids.remove(self._order.popleft())


class UnsentPages:
    """What pages are still to list of one table."""

    def __init__(self, sent: dict[str, str]) -> None:
        """`sent`: ids and clauses that the neighbour holds, as far as it was sent; kept up here while it is listed."""
        self._sent, self._unlisted = sent, Unlisted()
        self._gone: dict[str, None] = {}  # ids that it holds and that have left since

    def begin(self, wheres: Mapping[str, str], differs: Callable[[str], bool]) -> None:
        """Of what it should hold, the neighbour holds some under the same clause already; where it `differs`, pages
        list it."""
        self._unlisted, self._gone = Unlisted(id for id in wheres if differs(id)), {}
        self._sent.clear()
        self._sent.update({id: where for id, where in wheres.items() if id not in self._unlisted})

    def note_changes(self, ids: Iterable[str], wheres: Mapping[str, str]) -> None:
        """Something may have changed under these ids; they have these clauses now, or none."""
        for id in ids:
            if id not in wheres:
                self._gone[id] = None
            elif wheres[id] != self._sent.get(id):
                self._unlisted.add(id)

    def take(self, room: Room, where_of: Callable[[str], str | None]) -> dict[str, str]:
        """As many ids as there is room for, with the clauses that they have now."""
        page: dict[str, str] = {}
        while self._unlisted:
            id = self._unlisted.first
            where = where_of(id)
            if where is not None and where != self._sent.get(id):
                if not room.has(id, where):
                    break
                room.fill(id, where)
                page[id] = self._sent[id] = where
            self._unlisted.drop_first()
        return page

    @property
    def is_empty(self) -> bool:
        """Whether nothing more is to be listed."""
        return not self._unlisted

    @property
    def has_gone(self) -> bool:
        """Whether something has left that was listed."""
        return bool(self._gone)

    def take_gone(self) -> dict[str, None]:
        """What has left: it is withdrawn when all is listed."""
        gone, self._gone = self._gone, {}
        return gone


class SentPages:
    """What a neighbour was sent in pages so far, in this session."""

    def __init__(self, size: int, subscriptions: Mapping[int, None], advertisements: Mapping[int, None]) -> None:
        """`size`: of the digest. The buckets of each table that differ: what `Synced` speaks about."""
        self.size = size
        self._buckets = {SUBSCRIPTIONS: subscriptions, ADVERTISEMENTS: advertisements}
        self._last = 0  # seq

    def differs(self, table: str, id: str) -> bool:
        """Whether the neighbour may hold something else under an id."""
        return bucket_of(id, self.size) in self._buckets[table]

    def listing(self, table: str, wheres: Mapping[str, str]) -> Listing | None:
        """All buckets, with these entries in them; None if one is of another bucket."""
        listing: Listing = {bucket: {} for bucket in self._buckets[table]}
        for id, where in wheres.items():
            bucket = listing.get(bucket_of(id, self.size))
            if bucket is None:
                return None
            bucket[id] = where, None
        return listing

    def note(self, seq: int) -> None:
        """A page is sent."""
        self._last = seq

    def may_follow(self, seq: int) -> bool:
        """Whether this one was accepted: only the last page calls for another one."""
        return seq == self._last


class ReceivedPages:
    """What a peer has listed in this session, so far."""

    def __init__(self) -> None:
        self.is_whole = False  # the last page has come
        self._ids: dict[str, set[str]] = {SUBSCRIPTIONS: set(), ADVERTISEMENTS: set()}
        self._widened: dict[str, dict[str, None]] = {SUBSCRIPTIONS: {}, ADVERTISEMENTS: {}}

    def has(self, table: str, id: str) -> bool:
        return id in self._ids[table]

    def note(self, table: str, id: str) -> None:
        """An id is listed."""
        self._ids[table].add(id)

    def note_widened(self, table: str, alias: str) -> None:
        """What an id had stays under an alias for now."""
        self._widened[table][alias] = None

    def end(self) -> dict[str, dict[str, None]]:
        """All is listed. The aliases that end, by table."""
        self.is_whole = True
        self._ids = {SUBSCRIPTIONS: set(), ADVERTISEMENTS: set()}
        widened, self._widened = self._widened, {SUBSCRIPTIONS: {}, ADVERTISEMENTS: {}}
        return widened
