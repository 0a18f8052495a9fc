"""`Flush`: when all events have come that were on their way, and the answers to it.

    client ── Flush ─▶ B1 ── Flush ─▶ B2 ── Flush ─▶ B3
           ◀─ Flushed ──  ◀─ Flushed ──  ◀─ Flushed ──     each behind the events that were on their way to the left

A broker answers when every *other* link has answered. The driver sends the answer behind the events that wait for the
link. A link has at most one `Flush` under way: what is asked for meanwhile waits for the next one, a *round*, so that
peers that flush without end cost one message a round trip. An answer that a cut took is asked for again when the link
is synced. Of a neighbour that is away it is known only that its events have not come: nothing is answered before it
returns or is forgotten.

A peer of an older version has no `Flushed`. Its `Settled` of a `Flush` and all after it is held back instead, and the
`Settled` that comes from it is taken for the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from thatch.broker.forwarding import Forwarding
from thatch.broker.handling import Handling
from thatch.broker.link import Link
from thatch.broker.waits import Waiting
from thatch.errors import PeerError
from thatch.protocol.messages import Flush, Flushed, session_of
from thatch.protocol.versions import FLUSHES


@dataclass(slots=True)
class Rounds:
    """What one neighbour is asked for, round by round."""

    asked: int = 0  # the last round that somebody waits for
    sent: int = 0  # the last one for which `Flush` was sent
    answered: int = 0
    seq: int = 0  # of the last `Flush`
    total: int = 0  # the link's `sent_total` then

    def ask(self) -> int:
        """The round that begins after now."""
        self.asked = self.sent + 1
        return self.asked

    def is_under_way(self, link: Link) -> bool:
        return self.answered < self.sent and session_of(self.seq) == link.session

    def is_due(self, link: Link) -> bool:
        return self.answered < max(self.asked, self.sent) and link.is_synced and not self.is_under_way(link)

    def send(self, link: Link) -> Flush:
        """A round begins, or one that a cut has ended begins again."""
        self.sent = max(self.asked, self.sent)
        self.seq = link.next_seq()
        self.total = link.sent_total
        return Flush(self.seq)

    def answer(self) -> None:
        self.answered = self.sent


@dataclass(slots=True)
class WaitingFlush:
    """A `Flush` that has been handled and is not answered: until these rounds of other links are."""

    seq: int
    until: dict[str, int]  # link -> round
    settles: Waiting | None  # what a peer of an older version waits for instead

    def include(self, seq: int) -> None:
        """A later one waits for the same."""
        self.seq = seq

    def is_over(self, rounds: Mapping[str, Rounds]) -> bool:
        for name in [name for name, each in self.until.items() if rounds[name].answered >= each]:
            del self.until[name]
        return not self.until


class Flushing:
    def __init__(self, forwarding: Forwarding, handling: Handling) -> None:
        self._forwarding, self._links, self._handling = forwarding, forwarding.links, handling
        self._rounds: dict[str, Rounds] = {}  # by neighbour
        self._waiting: dict[str, deque[WaitingFlush]] = {}  # by the link from which they came

    # --- Messages -----------------------------------------------------------------------------------------------------

    def flush(self, message: Flush, link: str) -> None:
        source = self._links[link]
        waiting = self._waiting.setdefault(link, deque())
        others = [each.name for each in self._forwarding.brokers() if each.name != link]
        until = {name: self._rounds.setdefault(name, Rounds()).ask() for name in others}
        if waiting and waiting[-1].until == until:
            waiting[-1].include(message.seq)
        else:
            settles = source.waiting.hold(message.seq) if source.version < FLUSHES else None
            waiting.append(WaitingFlush(message.seq, until, settles))

    def note(self, message: Flushed, link: str) -> None:
        """A neighbour has answered; in an earlier session, that means nothing."""
        source, rounds = self._links[link], self._rounds.get(link)
        if session_of(message.seq) != source.session:
            return
        if rounds is None or message.seq != rounds.seq or not rounds.is_under_way(source):
            raise PeerError(f"{link!r} answers Flush {message.seq}, which it was not sent or has answered")
        rounds.answer()

    # --- What follows from them ---------------------------------------------------------------------------------------

    def answer(self) -> None:
        """Ask those that are to be asked, and answer what has been waited for."""
        if not self._waiting:
            return
        for name, rounds in self._rounds.items():
            link = self._links[name]
            if link.version < FLUSHES and rounds.is_under_way(link) and link.settled >= rounds.total:
                rounds.answer()
        for name, waiting in list(self._waiting.items()):
            self._answer(self._links[name], waiting)
            if not waiting:
                del self._waiting[name]
        for name, rounds in self._rounds.items():
            link = self._links[name]
            if rounds.is_due(link):
                self._handling.send(name, rounds.send(link))

    def _answer(self, link: Link, waiting: deque[WaitingFlush]) -> None:
        """The answer to the last `Flush` of a link that is over: it speaks of all before it, too."""
        last = 0
        while waiting and (session_of(waiting[0].seq) != link.peer_session or waiting[0].is_over(self._rounds)):
            each = waiting.popleft()
            if session_of(each.seq) != link.peer_session or not link.is_met:
                continue
            if each.settles is not None:
                each.settles.release()
            else:
                last = each.seq
        if last:
            self._handling.send(link.name, Flushed(last))

    def forget(self, name: str) -> None:
        """A link is gone for good: nothing comes from there."""
        self._rounds.pop(name, None)
        self._waiting.pop(name, None)
        for waiting in self._waiting.values():
            for each in waiting:
                each.until.pop(name, None)
