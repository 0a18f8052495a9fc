"""What programs were told that limits have cost them: which events that did not come it may speak of.

A notice says how many events it speaks of, and from when to when they came, not which. Several may speak of one event,
and some that they count came all the same. So an event is covered if all that did not come can be shared out among the
notices that may speak of each, no more of them to a notice than it counts:

    notices   A, of 2     B, of 1             c comes last, and only B may speak of it: b, of which
              a, b? ─────── b?, c             A may speak, too, moves there
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from thatch.protocol.wire import Lost


class Notices:
    """Of one durable subscription."""

    def __init__(self, may_speak_of: Callable[[Lost, str], bool]) -> None:
        """`may_speak_of` an event, by its id."""
        self._notices: list[Lost] = []
        self._covered: list[dict[str, None]] = []  # by notice, events
        self._may_speak_of = may_speak_of

    def add(self, notice: Lost) -> None:
        self._notices.append(notice)
        self._covered.append({})

    def may_cover(self, event: str) -> bool:
        """Whether one more event that did not come is covered, beside the others."""
        return self._moves_for(event) is not None

    def cover(self, event: str) -> bool:
        """Count an event that did not come. Whether it is covered."""
        moves = self._moves_for(event)
        for each, to, at in moves or ():
            self._covered[to][each] = None
            if at >= 0:
                del self._covered[at][each]
        return moves is not None

    def _moves_for(self, event: str) -> list[tuple[str, int, int]] | None:
        """Events that move so that there is room for one more: each, to which notice, from which; the new one last,
        from -1."""
        found: dict[int, tuple[str, int]] = {}  # by notice, the event that is to move there, and from which
        waiting = deque([(event, -1)])
        while waiting:
            each, at = waiting.popleft()
            for to, notice in enumerate(self._notices):
                if to in found or not self._may_speak_of(notice, each):
                    continue
                found[to] = each, at
                if len(self._covered[to]) < notice.count:
                    return _back(found, to)
                waiting.extend((other, to) for other in self._covered[to])
        return None


def _back(found: dict[int, tuple[str, int]], to: int) -> list[tuple[str, int, int]]:
    """The moves that lead to a notice with room, its own first."""
    moves = []
    while to >= 0:
        event, at = found[to]
        moves.append((event, to, at))
        to = at
    return moves
