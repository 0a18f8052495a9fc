"""Messages from one link that have been handled and have not settled: what they wait for, and what is said meanwhile.

    handled ─▶ waiting ────────────────────────────▶ settled: `Settled`
                  └─▶ excepted: `SettledExcept` ──────▶

Everything sent over a link has a number that only rises (link.py). A message waits until those links have settled that
had not when it was handled. While the only ones missing are away, or have settled except behind brokers that are away,
the message is excepted: that is said at once, and `Settled` follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from thatch.protocol.messages import SettledExcept

EXCEPTED_MAX = 64  # that are kept apart; more settle together, with the last one
NAMES_MAX = 16  # of brokers that are missing; more are counted


class Missing(NamedTuple):
    """Brokers behind which something has not settled: the nearest ones, some of them by name."""

    brokers: tuple[str, ...] = ()
    others: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """As people read them.

        >>> Missing(("B2", "B5"), 3).names
        ('B2', 'B5', '3 others')
        """
        return (*self.brokers, f"{self.others} others") if self.others else self.brokers


class Marks(Protocol):
    """How far a link has settled."""

    settled: int
    excepted: int
    is_away: bool
    missing: Missing  # the brokers behind which it has not


def together(parts: Iterable[Missing]) -> Missing:
    """What is missing in one part or another."""
    names: dict[str, None] = {}
    others = 0
    for each in parts:
        names |= dict.fromkeys(each.brokers)
        others += each.others
    brokers = tuple(names)
    return Missing(brokers[:NAMES_MAX], min(others + max(0, len(brokers) - NAMES_MAX), 2**31))


@dataclass(slots=True)
class Waiting:
    """A message that has been handled and has not settled: until what had been sent over other links has."""

    seq: int
    until: dict[str, int]  # link -> its `sent_total` then
    is_held: bool = False  # something else has to come first

    def include(self, other: Waiting) -> None:
        """A later message waits for the same, or for more."""
        self.seq = other.seq
        for link, total in other.until.items():
            self.until[link] = max(total, self.until.get(link, 0))

    def is_over(self, links: Mapping[str, Marks]) -> bool:
        """Whether all of it has settled by now."""
        for name in [name for name, total in self.until.items() if links[name].settled >= total]:
            del self.until[name]
        return not self.until and not self.is_held

    def release(self) -> None:
        """What had to come first has come."""
        self.is_held = False

    def is_excepted(self, links: Mapping[str, Marks]) -> bool:
        """Whether nothing is missing but brokers that are away."""
        if self.is_held:
            return False
        marks = ((links[name], total) for name, total in self.until.items())
        return all(link.is_away or max(link.settled, link.excepted) >= total for link, total in marks)

    def forget(self, link: str) -> None:
        self.until.pop(link, None)


class Waits:
    """Of one link, in order."""

    def __init__(self) -> None:
        self._excepted: deque[Waiting] = deque()  # of which that was said
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._excepted) + len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        yield from self._excepted
        yield from self._waiting

    def clear(self) -> None:
        self._excepted.clear()
        self._waiting.clear()

    def add(self, seq: int, until: dict[str, int]) -> None:
        """A message has been handled."""
        _append(self._waiting, Waiting(seq, until))

    def hold(self, seq: int) -> Waiting:
        """A message has been handled: it, and all after it, settle when the caller releases it."""
        self._waiting.append(Waiting(seq, {}, is_held=True))
        return self._waiting[-1]

    def forget(self, link: str) -> None:
        """Nobody waits for a link any more."""
        for waiting in self:
            waiting.forget(link)

    def take_settled(self, links: Mapping[str, Marks]) -> int | None:
        """The last message that has settled by now, if there is a new one."""
        last = None
        for queue in (self._excepted, self._waiting):
            while queue and queue[0].is_over(links):
                last = queue.popleft().seq
            if queue:
                break
        return last

    def take_excepted(self, links: Mapping[str, Marks]) -> SettledExcept | None:
        """What to say of the messages that wait for nobody any more who is there, if there are new ones."""
        last = None
        while self._waiting and self._waiting[0].is_excepted(links):
            last = self._waiting.popleft()
            if len(self._excepted) < EXCEPTED_MAX:
                _append(self._excepted, Waiting(last.seq, dict(last.until)))
            else:
                self._excepted[-1].include(last)
        if last is None:
            return None
        brokers, others = together(links[name].missing for name in last.until if links[name].settled < last.until[name])
        return SettledExcept(last.seq, brokers, others)


def _append(queue: deque[Waiting], waiting: Waiting) -> None:
    if queue and queue[-1].until == waiting.until:
        queue[-1].include(waiting)
    else:
        queue.append(waiting)
