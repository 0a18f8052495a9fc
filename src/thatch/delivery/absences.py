"""How long neighbours have been away: after some time nobody waits for them any more (broker/placeholders.py)."""

from __future__ import annotations

from thatch.delivery.driver import Driver
from thatch.protocol.messages import Away


class Absences:
    """A neighbour is there when it has settled what it was sent at the beginning of its session, and while it takes
    page after page of that. One that greets and says nothing, or that comes and goes, is not."""

    def __init__(self, driver: Driver, seconds: float) -> None:
        """`seconds`: how long a neighbour is waited for."""
        self._driver, self._seconds = driver, seconds
        self._since: dict[str, float] = {}  # by neighbour, when it was there last
        self._pages: dict[str, int] = {}  # by neighbour that is sent pages, how much it was sent so far

    def tick(self, now: float) -> None:
        """`now`: of a clock that nobody sets. From the start on, or from when it is first known, a neighbour counts as
        there."""
        links = [link for link in self._driver.broker.links.values() if not link.is_client]
        pages = {link.name: link.sent_count for link in links if link.is_listing}
        there = {link.name for link in links if link.is_there}
        there.update(name for name, count in pages.items() if self._pages.get(name, count) != count)
        self._since = {link.name: now if link.name in there else self._since.get(link.name, now) for link in links}
        self._pages = pages
        for link in links:
            if not (link.is_synced or link.is_away) and now - self._since[link.name] >= self._seconds:
                self._driver.take(Away(), link.name)
