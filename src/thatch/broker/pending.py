"""Advertisements that a neighbour was sent, or is to be sent, and that have not settled over its link; and the
subscriptions that are held on its behalf because it may want them: placeholders.py says when."""

from __future__ import annotations

from collections.abc import Container, Iterable


class PendingAdvertisements:
    """Of one neighbour."""

    def __init__(self, prefix: str) -> None:
        """`prefix`: how the ids of its placeholders begin; that of the advertisement follows."""
        self.prefix = prefix
        self.unsettled: dict[str, int] = {}  # id -> the total of what was sent that settles it; totals rise
        self.placeholders: dict[str, str] = {}  # id of the advertisement -> that of the placeholder

    def note(self, ids: Iterable[str], offered: Container[str], total: int, settled: int) -> None:
        """What the neighbour needs to know of these has changed, if they are still `offered`: that settles by `total`,
        and has if so much is `settled`."""
        for id in ids:
            self.unsettled.pop(id, None)  # the last change comes last
            if id in offered and total > settled:
                self.unsettled[id] = total

    def settle(self, total: int) -> list[str]:
        """All that was sent so far has settled. The advertisements that have settled by that."""
        ids: list[str] = []
        while self.unsettled and next(iter(self.unsettled.values())) <= total:
            ids.append(next(iter(self.unsettled)))
            del self.unsettled[ids[-1]]
        return ids

    def put_placeholder(self, id: str) -> None:
        """Hold a subscription to a whole advertisement."""
        self.placeholders[id] = self.prefix + id

    def drop_placeholder(self, id: str) -> None:
        del self.placeholders[id]

    def is_placeholder(self, id: str) -> bool:
        """Whether a subscription that came over the link is one."""
        return bool(self.placeholders) and id.startswith(self.prefix)
