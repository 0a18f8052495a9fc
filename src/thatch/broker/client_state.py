"""A client: what it wants and publishes, at one broker or at two while it moves. A pure state machine, like the broker.

It keeps what it has sent each broker, and sends it again when a link returns and the broker's digest differs. Events
are delivered at least once; each is handed on once, as long as it is among the last `remembered`.

Moving loses nothing: subscribe at the new broker; when that has settled, flush the old one; when that is answered,
unsubscribe there. Without the flush, an event that was published before could still be on its way to the old broker and
find no route. Events that come from both are handed on once. A flush that meets a lost connection is said again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from thatch.broker.waits import Missing, together
from thatch.errors import CallerError, shown
from thatch.protocol.digest import differing, hashed
from thatch.protocol.ids import ADVERTISEMENTS, ENTRY_NAMES, SUBSCRIPTIONS, check_link_name, event_prefix
from thatch.protocol.messages import (
    Accepted,
    Advertise,
    Deliver,
    Digest,
    Flush,
    Flushed,
    Hello,
    Message,
    Publish,
    Refused,
    Replace,
    Send,
    Settled,
    SettledExcept,
    Subscribe,
    Synced,
    Unadvertise,
    Unsubscribe,
    seq_of,
    session_of,
)
from thatch.protocol.versions import FLUSHES, VERSION_MAX, VERSION_MIN
from thatch.space.space import Space

REMEMBERED = 65_536
REFUSALS = 1_000

Key = tuple[str, str]  # table, id
Held = tuple[str, float | None] | None  # clause, lease


@dataclass(slots=True)
class Home:
    """A broker that the client is, or was, connected to."""

    session: int = 0
    peer_session: int = 0
    is_up: bool = False
    is_synced: bool = False
    count: int = 0
    settled: int = 0  # seq
    excepted: int = 0  # seq: what has settled except behind `missing`
    missing: Missing = field(default_factory=Missing)
    version: int = VERSION_MIN  # of the protocol that it speaks
    is_flushing: bool = False  # asked to, and no answer has come
    flushed_at: int = 0  # seq of the last flush in this session
    wheres: dict[Key, str] = field(default_factory=dict)
    expires: dict[Key, float] = field(default_factory=dict)
    changed_at: dict[Key, int] = field(default_factory=dict)  # seq of the last change of each not settled, in order
    before: dict[int, tuple[Key, Held]] = field(default_factory=dict)  # by seq: what was held, until it is accepted

    def current(self, key: Key) -> Held:
        return (self.wheres[key], self.expires.get(key)) if key in self.wheres else None

    def connect(self, session: int) -> None:
        self.before.clear()
        self.session, self.is_up, self.is_synced, self.count, self.settled = session, True, False, 0, 0
        self.excepted, self.missing = 0, Missing()
        self.peer_session = self.flushed_at = 0

    def disconnect(self) -> None:
        self.is_up = self.is_synced = False

    def meet(self, session: int, version: int) -> None:
        """The broker has greeted, in a session of its own, and speaks up to this version of the protocol."""
        self.peer_session, self.version = session, version

    def sync(self) -> int:
        """All that differs is sent now. The seq of the message that does."""
        self.is_synced = True
        seq = self.next_seq()
        self.changed_at = dict.fromkeys([*self.changed_at, *self.wheres], seq)
        return seq

    def ask_to_flush(self) -> None:
        """Now, or when all that differs has been sent."""
        self.is_flushing = True

    def flush(self) -> int:
        self.flushed_at = self.next_seq()
        return self.flushed_at

    def note_flushed(self, seq: int) -> None:
        """The broker has answered a flush, and all before it."""
        if self.is_flushing and self.is_synced and 0 < self.flushed_at <= seq:
            self.is_flushing = False

    def settle(self, seq: int) -> None:
        if self.version < FLUSHES:  # there is no other answer
            self.note_flushed(seq)
        self.settled = max(self.settled, seq)
        while self.changed_at:
            first = next(iter(self.changed_at))
            if self.changed_at[first] > self.settled:
                break
            del self.changed_at[first]

    def settle_except(self, message: SettledExcept) -> None:
        self.excepted, self.missing = message.seq, Missing(message.brokers, message.others)

    def hold(self, key: Key, where: str, expires: float | None) -> None:
        self.wheres[key] = where
        self.expires.pop(key, None)
        if expires is not None:
            self.expires[key] = expires

    def drop(self, key: Key) -> bool:
        """Whether it was there."""
        self.expires.pop(key, None)
        return self.wheres.pop(key, None) is not None

    def next_seq(self) -> int:
        self.count += 1
        return seq_of(self.session, self.count)

    def note_change(self, key: Key, seq: int) -> None:
        self.changed_at.pop(key, None)  # the last change comes last
        self.changed_at[key] = seq

    def note_sent(self, key: Key, seq: int, held: Held) -> None:
        """A change is sent; until it is accepted, the broker may hold what it held before."""
        self.note_change(key, seq)
        self.before[seq] = key, held

    def take_back(self, message: Refused) -> None:
        """The broker refused a change, and holds what it held before."""
        key, held = self.before.pop(message.seq, ((message.table, message.id), None))
        if not message.seq or key != (message.table, message.id):
            return
        for seq, (other, _) in self.before.items():
            if other == key and seq > message.seq:  # said since: it stands, unless it is refused too
                self.before[seq] = key, held
                return
        if held is None:
            self.drop(key)
            self.changed_at.pop(key, None)
        else:
            self.hold(key, *held)


class RecentIds:
    """The last ids. (A dict alone would do, but to find its first key it walks over all that were deleted.)"""

    def __init__(self, count: int) -> None:
        self._count, self._ids = count, set[str]()
        self._order: deque[str] = deque()

    def is_new(self, id: str) -> bool:
        """Whether an id is not among the last ones; it is from now on."""
        if id in self._ids:
            return False
        self._ids.add(id)
        self._order.append(id)
        if len(self._order) > self._count:
            self._ids.remove(self._order.popleft())
        return True


class ClientState:
    def __init__(self, name: str, space: Space, remembered: int = REMEMBERED, token: str = "") -> None:
        """`token`: what the ids of its events have that those of no other life of this client have. Without one it is
        the number of the first session: enough where one program chooses the numbers of all sessions."""
        check_link_name(name)
        self.name, self.space = name, space
        self.homes: dict[str, Home] = {}
        self.refusals: deque[Refused] = deque(maxlen=REFUSALS)  # the last ones
        self._token = token
        self._published = 0
        self._seen = RecentIds(remembered)

    def connect(self, broker: str, session: int) -> list[Send]:
        home = self.homes.setdefault(broker, Home())
        self._token = self._token or str(session)
        home.connect(session)
        return [Send(broker, Hello(self.name, session, self.space.to_json(), is_client=True, version_max=VERSION_MAX))]

    def disconnect(self, broker: str) -> None:
        self.homes[broker].disconnect()

    # --- What a program asks for: what to send ----------------------------------------------------------------------

    def subscribe(self, broker: str, id: str, where: str, expires: float | None = None) -> list[Send]:
        return self._put(broker, SUBSCRIPTIONS, id, where, expires, Subscribe)

    def advertise(self, broker: str, id: str, where: str, expires: float | None = None) -> list[Send]:
        return self._put(broker, ADVERTISEMENTS, id, where, expires, Advertise)

    def replace(self, broker: str, id: str, where: str) -> list[Send]:
        home = self.homes[broker]
        key = SUBSCRIPTIONS, id
        if key not in home.wheres:
            raise CallerError(f"no subscription {shown(id)} to replace")
        held = home.current(key)
        home.hold(key, where, home.expires.get(key))
        return self._changed(broker, key, held, lambda seq: Replace(seq, id, where))

    def unsubscribe(self, broker: str, id: str) -> list[Send]:
        return self._drop(broker, (SUBSCRIPTIONS, id), lambda seq: Unsubscribe(seq, id))

    def unadvertise(self, broker: str, id: str) -> list[Send]:
        return self._drop(broker, (ADVERTISEMENTS, id), lambda seq: Unadvertise(seq, id))

    def publish(self, broker: str, event: Mapping[str, Any], payload: bytes = b"") -> list[Send]:
        return [Send(broker, Publish(self.next_event_id(), dict(event), payload))]

    def next_event_id(self) -> str:
        self._published += 1
        return f"{event_prefix(self.name)}{self._token}:{self._published}"

    def flush(self, broker: str) -> list[Send]:
        """Before leaving a broker: when it is answered, whatever was on its way to us there has come."""
        home = self.homes[broker]
        home.ask_to_flush()
        if not home.is_synced:
            return []  # sent after `Synced`
        return [Send(broker, Flush(home.flush()))]

    def is_flushed(self, broker: str) -> bool:
        """Whether every flush has been answered."""
        home = self.homes[broker]
        return home.is_synced and not home.is_flushing

    def is_settled(self, broker: str, table: str, id: str) -> bool:
        """Whether the last change of an id has settled."""
        home = self.homes[broker]
        return home.is_synced and home.settled >= home.changed_at.get((table, id), 0)

    def missing(self, broker: str, table: str, id: str) -> Missing | None:
        """The brokers that the last change of an id has not reached because they are away: none if it has settled. None
        if it has neither settled nor settled except behind some."""
        home = self.homes[broker]
        if self.is_settled(broker, table, id):
            return Missing()
        at = home.changed_at.get((table, id), 0)
        return home.missing if home.is_synced and 0 < at <= home.excepted else None

    def missing_names(self, broker: str, table: str, ids: Iterable[str]) -> tuple[str, ...]:
        """The same for several ids, as people read them."""
        parts = [self.missing(broker, table, id) for id in ids]
        return together(part for part in parts if part is not None).names

    def _put(self, broker: str, table: str, id: str, where: str, expires: float | None, kind: Any) -> list[Send]:
        home = self.homes[broker]
        key = table, id
        held = home.current(key)
        expires = None if expires is None else float(expires)
        home.hold(key, where, expires)
        return self._changed(broker, key, held, lambda seq: kind(seq, id, where, expires))

    def _drop(self, broker: str, key: Key, message: Any) -> list[Send]:
        if not self.homes[broker].drop(key):
            raise CallerError(f"no {ENTRY_NAMES[key[0]]} {shown(key[1])} at broker {broker!r}")
        return self._changed(broker, key, None, message)

    def _changed(self, broker: str, key: Key, held: Held, message: Any) -> list[Send]:
        home = self.homes[broker]
        if not home.is_synced:
            home.note_change(key, 0)  # sent when it is
            return []
        seq = home.next_seq()
        home.note_sent(key, seq, held)
        return [Send(broker, message(seq))]

    def adopt(self, broker: str, wheres: Mapping[str, str]) -> None:
        """A broker has these subscriptions of ours, by id, from an earlier life."""
        for id, where in wheres.items():
            self.homes[broker].hold((SUBSCRIPTIONS, id), where, None)

    # --- What comes from a broker -----------------------------------------------------------------------------------

    def handle(self, message: Message, broker: str) -> list[Send]:
        home = self.homes[broker]
        if isinstance(message, Hello) and home.is_up:
            home.meet(message.session, max(message.version, message.version_max))
        elif isinstance(message, Digest) and session_of(message.seq) == home.peer_session and not home.is_synced:
            return self._sync(message, broker, home)
        elif isinstance(message, Settled) and session_of(message.seq) == home.session:
            home.settle(message.seq)
        elif isinstance(message, Flushed) and session_of(message.seq) == home.session:
            home.note_flushed(message.seq)
        elif isinstance(message, SettledExcept) and session_of(message.seq) == home.session:
            home.settle_except(message)
        elif isinstance(message, Accepted):
            home.before.pop(message.seq, None)
        elif isinstance(message, Refused):
            self.refusals.append(message)
            home.take_back(message)
        elif not isinstance(message, Accepted | Settled | SettledExcept | Flushed | Hello | Digest):
            raise CallerError(f"a client takes no {type(message).__name__}")
        return []

    def deliver(self, delivered: Deliver) -> bool:
        """Whether an event is to be handed on: it was not before."""
        return self._seen.is_new(delivered.event.id)

    def _sync(self, message: Digest, broker: str, home: Home) -> list[Send]:
        listings = []
        for table, theirs in zip((SUBSCRIPTIONS, ADVERTISEMENTS), hashed(message), strict=True):
            own = {key[1]: (where, home.expires.get(key)) for key, where in home.wheres.items() if key[0] == table}
            listings.append(differing(own, theirs, message.size, message.key))
        sends = [Send(broker, Synced(home.sync(), message.size, *listings))]
        return [*sends, Send(broker, Flush(home.flush()))] if home.is_flushing else sends
