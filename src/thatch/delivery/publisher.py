"""What a client publishes over one connection: its events are counted, and acknowledged when they are dealt with.

Publish, Publish … ▶ take_events: routed, and kept if a durable subscription wants them
                   ◀ acknowledgement: `Published` counts them, when what was kept is on disk
"""

from __future__ import annotations

from collections.abc import Callable

from thatch.delivery.driver import DISK_FULL, Driver, Outcome
from thatch.errors import CallerError, PeerError
from thatch.protocol import wire
from thatch.protocol.messages import Publish, Refused


class PublisherSession:
    def __init__(self, driver: Driver, name: str) -> None:
        """`name`: of the client."""
        self.name = name
        self._driver = driver
        self._count = self._acknowledged = 0
        self._ticket = 0  # of the last event that is kept

    def take_events(self, events: list[Publish]) -> list[Refused]:
        """Refusals of those that there is no room for."""
        driver = self._driver
        link = driver.broker.links.get(self.name)
        if link is None or not link.is_met:  # hung up on: what is dropped may not count as published
            raise PeerError("an event after the end of the session")
        self._count += len(events)
        outcomes = driver.publish(events, self.name)
        if Outcome.KEPT in outcomes:
            self._ticket = driver.journal.ticket
        if Outcome.REFUSED not in outcomes:
            return []
        reason = DISK_FULL.format(driver.broker.name)
        refused = [event for event, outcome in zip(events, outcomes, strict=True) if outcome is Outcome.REFUSED]
        return [Refused(0, event.id, reason, code="disk_full") for event in refused]

    def take_refill(self, message: wire.Refill, take: Callable[[wire.Refill, str], None]) -> Refused | None:
        """What was kept elsewhere counts as an event. Its refusal, if `take` raises."""
        self._count += 1
        try:
            take(message, self.name)
        except CallerError as error:
            return Refused(0, message.name, str(error), code=error.code)
        self._ticket = self._driver.journal.ticket
        return None

    def acknowledgement(self) -> tuple[wire.Published, int] | None:
        """Of the events so far, and the ticket that it waits for; None if there are none since the last one."""
        if self._count == self._acknowledged:
            return None
        self._acknowledged = self._count
        return wire.Published(self._count), self._ticket
