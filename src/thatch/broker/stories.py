"""Stories: what a broker did about a subscription, an event or a link, and why, in order. Kept while tracing is on.

One ring holds a line for each thing that was done, with the ids and links that it is about; a story is the lines about
one of them. The reasons are read from the tables when the message has been handled, so that nothing is written down on
the way, and a broker that is not traced does nothing for it. The oldest lines go when there are too many, or too many
bytes of them; a message that changes thousands of subscriptions leaves a bounded number of lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from thatch.broker.link_states import INPUTS, STEPS, LinkAction, LinkState
from thatch.broker.reasons import Tables, listed, reason_for
from thatch.errors import CallerError, EventError, shown
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, overlay_id
from thatch.protocol.messages import (
    OPERATOR,
    Accepted,
    Advertise,
    Deliver,
    Effect,
    Message,
    Page,
    Persist,
    Publish,
    Reject,
    Replace,
    Send,
    Sequenced,
    Settled,
    Subscribe,
    Synced,
    Unadvertise,
    Unsubscribe,
    session_of,
)
from thatch.protocol.records import AdvertisementKey, Drop, SubscriptionKey
from thatch.space.space import Space

ENTRIES_MAX, BYTES_MAX = 10_000, 16 * 2**20  # of a ring, unless other bounds are given
LINES_MAX = 1_000  # of one message
TEXT_MAX = 400  # characters of a line
LINE_BYTES = 200  # that a line takes in addition to its characters
CHARACTER_BYTES = 4  # at most
TABLES = {Subscribe: SUBSCRIPTIONS, Replace: SUBSCRIPTIONS, Unsubscribe: SUBSCRIPTIONS,
          Advertise: ADVERTISEMENTS, Unadvertise: ADVERTISEMENTS}  # fmt: skip
Decided = dict[tuple[str, str, str], str]  # by table, id and neighbour


class StoryEntry(NamedTuple):
    """One thing that a broker did."""

    at: float  # the time of the message that it was done for
    text: str

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.text}"


class _Line(NamedTuple):
    entry: StoryEntry
    about: tuple[str, ...]  # ids and links
    size: int
    link: str = ""  # of a numbered message, or of the answer to it
    seq: int = 0
    settles: bool = False  # all of the link up to `seq`


class Stories:
    def __init__(self, name: str, tables: Tables, entries_max: int, bytes_max: int, lines_max: int = LINES_MAX) -> None:
        """`name`: of the broker. `lines_max`: of one message."""
        if entries_max < 1 or bytes_max < 1:
            raise CallerError(f"stories need room: not {entries_max} entries, {bytes_max} bytes")
        self._name, self._tables = name, tables
        self._entries_max, self._bytes_max, self._lines_max = entries_max, bytes_max, lines_max
        self._lines: deque[_Line] = deque()
        self._bytes = self._forgotten = 0
        self._now, self._room = 0.0, 0  # for lines of the present message

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def size(self) -> int:
        """Bytes of all lines, at most."""
        return self._bytes

    def story(self, id: str) -> list[StoryEntry]:
        """All that is about a subscription or an advertisement (by the id that the overlay knows), an event or a link.
        If older lines were forgotten, the first entry says how many."""
        found: list[StoryEntry] = []
        unsettled: dict[tuple[str, int], int] = {}  # (link, session) -> seq
        for line in self._lines:
            key = line.link, session_of(line.seq)
            if id in line.about:
                found.append(line.entry)
                if line.seq and not line.settles:
                    unsettled[key] = line.seq
            elif line.settles and unsettled.get(key, line.seq + 1) <= line.seq:
                found.append(line.entry)
                del unsettled[key]
        if self._forgotten and self._lines:
            since = self._lines[0].entry.at
            found.insert(0, StoryEntry(since, f"{self._forgotten:,} entries from before are forgotten"))
        return found

    # --- Writing ------------------------------------------------------------------------------------------------------

    def note(
        self,
        message: Message,
        link: str,
        state: LinkState | None,
        effects: Sequence[Effect | Exception],
        now: float,
        space: Space,
    ) -> None:
        """A message has been handled: `state` is that of its link before (None: there was none)."""
        self._now, self._room = now, self._lines_max
        try:
            if isinstance(message, Publish):
                self._note_event(message, link, state, effects, space)
            else:
                self._note_message(message, link, state, effects)
        except Exception as error:  # the effects stand, whatever can be said about them
            self._add([link], f"{_kind(message)} could not be noted: {type(error).__name__}: {error}")
        if self._room < 0:
            self._room = 1
            self._add([link], f"{_kind(message)}: more was done than {self._lines_max:,} lines can say")

    def _add(self, about: Iterable[str], text: str, link: str = "", seq: int = 0, settles: bool = False) -> None:
        self._room -= 1
        if self._room < 0:
            return
        ids = tuple(dict.fromkeys(each for each in about if each))
        text = text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"
        size = LINE_BYTES + CHARACTER_BYTES * (len(text) + sum(map(len, ids)))
        self._lines.append(_Line(StoryEntry(self._now, text), ids, size, link, seq, settles))
        self._bytes += size
        while self._bytes > self._bytes_max or len(self._lines) > self._entries_max:
            self._bytes -= self._lines.popleft().size
            self._forgotten += 1

    # --- Messages about subscriptions and links -----------------------------------------------------------------------

    def _note_message(
        self, message: Message, link: str, state: LinkState | None, effects: Sequence[Effect | Exception]
    ) -> None:
        ids = self._ids_of(message, link)
        cause = f"{_kind(message)}{f' {shown(message.id)}' if hasattr(message, 'id') else ''}"
        cause += f" of {link!r}" if link != OPERATOR else " of the operator"
        seq = message.seq if isinstance(message, Sequenced) and link != OPERATOR else 0
        input = INPUTS.get(type(message))
        if state is not None and input is not None and STEPS[state][input].action is LinkAction.IGNORE:
            self._add([link, *ids], f"{cause}: ignored, the link is {state.value}")
            return
        if ids or link != OPERATOR:
            where = getattr(message, "where", None)
            self._add([link, *ids], f"{cause}{f': {where}' if where is not None else ''}", link, seq)
        self._note_state(link, state, cause)
        decided = self._note_records(effects, ids, cause)
        for effect in effects:
            if isinstance(effect, Send):
                self._note_send(effect, ids if effect.link == link else (), decided, cause)
            elif isinstance(effect, Reject):
                ending = ", and hung up on" if effect.close else ""
                self._add([effect.link, *ids], f"{effect.link!r} was refused{ending}: {effect.refused.reason}")
            elif isinstance(effect, Exception):
                self._add([link, *ids], f"{cause} failed: {type(effect).__name__}: {effect}")

    def _ids_of(self, message: Message, link: str) -> tuple[str, ...]:
        """The ids that a message names, as the overlay knows them."""
        if type(message) not in TABLES:
            return ()
        own: str = message.id  # type: ignore[attr-defined]
        source = self._tables.links.get(link)
        if source is None or source.is_client:
            return (overlay_id(self._name, link, own),)
        if isinstance(message, Unsubscribe):
            return own, *message.also, *message.replacements
        return (own, *message.retracts) if isinstance(message, Subscribe) else (own,)

    def _note_state(self, link: str, state: LinkState | None, cause: str) -> None:
        after = self._tables.links.get(link)
        now = None if after is None else after.state
        if now is not state:
            names = ["unknown" if state is None else state.value, "forgotten" if now is None else now.value]
            self._add([link], f"{link!r}: {names[0]} → {names[1]}, by {cause}")

    def _note_records(self, effects: Sequence[Effect | Exception], ids: Sequence[str], cause: str) -> Decided:
        """What came and what left. Returns what is said with it, by table, id and neighbour."""
        decided: Decided = {}
        named = set(ids)
        for record in [each for effect in effects if isinstance(effect, Persist) for each in effect.records]:
            entry = record.key
            if not isinstance(entry, SubscriptionKey | AdvertisementKey):
                continue
            has_left = isinstance(record, Drop)
            if entry.id not in named:
                self._add([entry.id, entry.peer.name], f"{shown(entry.id)} {'left' if has_left else 'came'}: {cause}")
            for link in self._tables.links.values() if self._room > 0 else ():
                if link.is_client or link.name == entry.peer.name:
                    continue
                key = entry.table, entry.id, link.name
                if has_left:
                    decided[key] = "it left"
                else:
                    decided[key] = self._decision(*key)
                    self._add([entry.id, link.name], decided[key])
        return decided

    def _decision(self, table: str, id: str, link: str) -> str:
        is_sent, reason = reason_for(self._tables, table, id, link)
        if not is_sent:
            return f"{shown(id)} not sent to {link!r}: {reason}"
        when = "" if self._tables.links[link].is_synced else " when its link is synced"
        return f"{shown(id)} sent to {link!r}{when}" + (f", {reason}" if reason else "")

    def _note_send(self, effect: Send, ids: Sequence[str], decided: Decided, cause: str) -> None:
        message, link = effect.message, effect.link
        table = TABLES.get(type(message))
        if isinstance(message, Settled):
            text = f"settled for {link!r}: every broker on the way has what it needs"
            self._add([link], text, link, message.seq, settles=True)
        elif isinstance(message, Accepted):
            self._add([link, *ids], f"accepted for {link!r}: checked and recorded")
        elif table is None:
            self._add([link], f"{_kind(message)} was sent to {link!r}")
        elif isinstance(message, Unsubscribe | Unadvertise):
            for id in message.replacements if isinstance(message, Unsubscribe) else ():
                self._note_sent(table, id, link, decided, cause)
            also = message.also if isinstance(message, Unsubscribe) else ()
            self._note_withdrawn(table, (message.id, *also), link, decided, cause)
        else:
            self._note_sent(table, message.id, link, decided, cause)  # type: ignore[attr-defined]
            if isinstance(message, Subscribe):
                self._note_withdrawn(table, message.retracts, link, decided, cause)
        for name, all_of_it in _listings(message):
            for id in all_of_it:
                self._add([id, link], f"{shown(id)} listed among {name} for {link!r}, which held others")

    def _note_sent(self, table: str, id: str, link: str, decided: Decided, cause: str) -> None:
        if (table, id, link) not in decided:
            is_own = id in self._tables.links[link].outbound.table(table).wheres
            why = "nothing that was sent there covers it" if is_own else "it stands for others"
            self._add([id, link], f"{shown(id)} sent to {link!r}, since {cause}: {why}")

    def _note_withdrawn(self, table: str, ids: Iterable[str], link: str, decided: Decided, cause: str) -> None:
        for id in ids:
            if self._room <= 0:
                return
            is_known = bool(self._tables.received.table(table).of_id(id))
            reason = reason_for(self._tables, table, id, link)[1] if is_known else "it stands for nothing any longer"
            reason = decided.get((table, id, link), reason)
            self._add([id, link], f"{shown(id)} withdrawn from {link!r}, since {cause}: {reason}")

    # --- Events -------------------------------------------------------------------------------------------------------

    def _note_event(
        self, message: Publish, link: str, state: LinkState | None, effects: Sequence[Effect | Exception], space: Space
    ) -> None:
        id, event = message.id, f"event {shown(message.id)}"
        if state not in (LinkState.MET, LinkState.LISTING, LinkState.SYNCED):
            why = f"the link is {'unknown' if state is None else state.value}"
            self._add([id, link], f"{event} of {link!r}: ignored, {why}")
            return
        self._add([id, link], f"{event} came from {link!r}")
        wanted = self._wanted(message, space)
        for effect in effects:
            if isinstance(effect, Exception):
                self._add([id, link], f"{event} failed: {type(effect).__name__}: {effect}")
                return
            if isinstance(effect, Reject):
                self._add([id, link], f"{event} refused: {effect.refused.reason}")
                return
            if isinstance(effect, Deliver):
                wanted.pop(effect.link, None)
                self._add([id, effect.link], f"{event} delivered to {effect.link!r} for {listed(effect.ids)}")
            elif isinstance(effect, Send):
                ids = wanted.pop(effect.link, [])
                why = f"wanted by {listed(ids)}" if ids else self._why_without_subscription()
                self._add([id, effect.link], f"{event} sent to {effect.link!r}: {why}")
        if not self._tables.links[link].is_client:
            wanted.pop(link, None)  # it does not go back
        for name, ids in wanted.items():
            missing = self._tables.links[name].state.value
            self._add([id, name], f"{event} not sent to {name!r}, where {listed(ids)} want it: the link is {missing}")
        if not effects and not wanted:
            self._add([id], f"{event}: no subscription wants it")

    def _why_without_subscription(self) -> str:
        return "events flood" if self._tables.settings.routing == "events" else "its cell is wanted there"

    def _wanted(self, message: Publish, space: Space) -> dict[str, list[str]]:
        """The subscriptions that want an event, by the link that they came over."""
        try:
            point = space.encode(message.event)
        except (EventError, CallerError):
            return {}
        found: dict[str, list[str]] = {}
        for entry in self._tables.received.subscriptions.holding(point):
            found.setdefault(entry.link, []).append(entry.id)
        return found


def _listings(message: Message) -> tuple[tuple[str, list[str]], ...]:
    """The ids that a message lists, by table."""
    if isinstance(message, Page):
        return (SUBSCRIPTIONS, [*message.subscriptions]), (ADVERTISEMENTS, [*message.advertisements])
    if isinstance(message, Synced):
        tables = (SUBSCRIPTIONS, message.subscriptions), (ADVERTISEMENTS, message.advertisements)
        return tuple((name, [id for bucket in buckets.values() for id in bucket]) for name, buckets in tables)
    return ()


def _kind(message: Message) -> str:
    return type(message).__name__
