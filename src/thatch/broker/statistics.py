"""How far from its subscriber the events of a subscription part from those of others: what incremental pruning goes by.

Every event carries the hops since the last broker at which more than one subscription wanted it. The broker of a
subscriber, and no other, notes them for a while: an event with distance d would have come to within d hops anyway, for
somebody else. So beyond h hops, the share of its events that only this subscription brings there is the share with a
distance of h or more.

    publisher ── E ── D ── C ──────── B ──────── A ── s         wanted at C by somebody else, too: distance 0 there,
                           └── J ── other                       1 at B, 2 at A. To keep s beyond C costs nothing.

The congestion paper keeps a row for each event (24 MB at its largest). Here counts are kept by distance in slices of
the history, so that memory does not grow with the rate of events; what is forgotten is forgotten a slice at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

SLICES = 8  # of the history

Slice = tuple[int, dict[int, int]]  # its number in time; distance -> events


class Distances:
    """Of the subscriptions of one broker's clients, by advertisement.

    >>> distances = Distances(history_seconds=60.0)
    >>> for distance in (6, 2, 2, 6, 7):
    ...     distances.saw("S1", ["A1"], distance, now=1.0)
    >>> distances.prune("S1", ["A1"], theta=0.79, now=2.0)
    {'A1': 7}
    >>> distances.prune("S1", ["A1"], theta=0.5, now=2.0)
    {'A1': 7}
    >>> distances.prune("S1", ["A1"], theta=0.3, now=2.0)
    {'A1': 3}
    """

    def __init__(self, history_seconds: float) -> None:
        """`history_seconds`: how long an event counts."""
        self.history_seconds = history_seconds
        self._seen: dict[str, dict[str, deque[Slice]]] = {}  # subscription -> advertisement

    def __len__(self) -> int:
        """How many subscriptions have had events."""
        return len(self._seen)

    def saw(self, id: str, advertisements: Iterable[str], distance: int, now: float) -> None:
        """An event that came under these advertisements is delivered for a subscription."""
        number = int(now * SLICES / self.history_seconds)
        of_id = self._seen.setdefault(id, {})
        for advertisement in advertisements:
            slices = of_id.get(advertisement)
            if slices is None:
                for each in [each for each, old in of_id.items() if not old or old[-1][0] <= number - SLICES]:
                    del of_id[each]  # publishers come and go while a subscription stays
                slices = of_id[advertisement] = deque()
            if not slices or slices[-1][0] != number:
                slices.append((number, {}))
                _forget_before(slices, number - SLICES)
            counts = slices[-1][1]
            counts[distance] = counts.get(distance, 0) + 1

    def counts(self, id: str, advertisement: str, now: float) -> dict[int, int]:
        """Events of the history, by distance, ascending."""
        slices = self._seen.get(id, {}).get(advertisement, deque())
        _forget_before(slices, int(now * SLICES / self.history_seconds) - SLICES)
        found: dict[int, int] = {}
        for _, counts in slices:
            for distance, events in counts.items():
                found[distance] = found.get(distance, 0) + events
        return dict(sorted(found.items()))

    def prune(self, id: str, advertisements: Iterable[str], theta: float, now: float) -> dict[str, int]:
        """For each advertisement the hops along which a subscription is to be taken back: the smallest h for which
        more than theta of its events have a distance below h. Without events there are no false positives: 0."""
        return {each: _prune_distance(self.counts(id, each, now), theta) for each in advertisements}

    def similarity(self, id: str, advertisement: str, hops: int, now: float) -> float | None:
        """The congestion paper's phi as seen from here: the share of a subscription's events that somebody else wants
        at the broker so many hops away, or nearer; None without events."""
        counts = self.counts(id, advertisement, now)
        every = sum(counts.values())
        return sum(events for distance, events in counts.items() if distance <= hops) / every if every else None

    def forget(self, id: str) -> None:
        self._seen.pop(id, None)


def _prune_distance(counts: dict[int, int], theta: float) -> int:
    every, below = sum(counts.values()), 0
    for distance, events in counts.items():
        below += events
        if below > theta * every:
            return distance + 1
    return 0


def _forget_before(slices: deque[Slice], oldest: int) -> None:
    while slices and slices[0][0] <= oldest:
        slices.popleft()
