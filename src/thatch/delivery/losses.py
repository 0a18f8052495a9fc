"""What limits have cost, said in the stream itself: a gap stands in place of events that went.

    e1 e2 e3 e4 e5 e6        e1 to e3 go, because there is too much, or because they are too old
           gap e4 e5 e6      under the number of e3: 3 events, from when to when, of which broker
               gap e5 e6     what goes next joins it, unless the gap is under way

A gap is kept until it is acknowledged, as an event, and no limit drops it. A broker that gets one passes it on to all
that is durable behind it. So that a stream has few of them, one joins the last of the same origin that is not under
way; beyond `GAPS_MAX` any joins any. It may be said twice, after a crash, and of events that did arrive: what it counts
is the most that is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from msgspec.structs import replace

from thatch.protocol.wire import Gap

log = logging.getLogger("thatch.node")
GAPS_MAX = 64  # of a stream
LOG_SECONDS = 60.0  # between two lines about one stream


class Gaps:
    """Those of one stream that are not acknowledged."""

    def __init__(self) -> None:
        self._by_number: dict[int, Gap] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Gap]:
        return iter(self._by_number.values())

    @property
    def first(self) -> int | None:
        return min(self._by_number, default=None)

    def add(self, gap: Gap) -> None:
        self._by_number[gap.number] = gap

    def take_partner(self, gap: Gap, sent: int) -> Gap | None:
        """The one that a gap joins, which is no more then. `sent`: what is under way, up to this number."""
        partners = [each for each in self if each.number > sent and _origin(each) == _origin(gap)]
        if not partners and len(self) >= GAPS_MAX:
            partners = [each for each in self if each.number > sent] or [*self]
        return self._by_number.pop(partners[-1].number) if partners else None

    def drop_through(self, number: int) -> None:
        for each in [each for each in self._by_number if each <= number]:
            del self._by_number[each]


def _origin(gap: Gap) -> tuple[str, str]:
    return gap.sender, gap.receiver


def joined(one: Gap, other: Gap) -> Gap:
    """One gap that says what both say."""
    is_same = _origin(one) == _origin(other)
    return replace(
        one,
        number=max(one.number, other.number),
        count=min(one.count + other.count, 2**63 - 1),
        since=min(one.since, other.since),
        until=max(one.until, other.until),
        sender=one.sender if is_same else "",
        receiver=one.receiver if is_same else "",
    )


class LossLog:
    """Lines of the log about one stream: one a minute."""

    def __init__(self, what: str, lost: int = 0) -> None:
        self._what, self._logged, self._next = what, lost, 0.0
        self._suspected_logged = 0

    def note(self, lost: int, suspected: int, now: float) -> None:
        """So many events have gone by now, and so many of them nobody had asked for."""
        if lost == self._logged or now < self._next:
            return
        log.warning(
            "%s: %d events lost to its limits, %d of them events that nobody had asked for",
            self._what, lost - self._logged, suspected - self._suspected_logged,
        )  # fmt: skip
        self._logged, self._suspected_logged, self._next = lost, suspected, now + LOG_SECONDS
