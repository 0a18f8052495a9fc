"""What two nodes say to one another about events, over one connection: `Resume`, then `Forward` and `Received`.

greeting ▶ Resume ─────────────▶ take: which events the other side holds; the stream sends the rest
                                 Forward ▶ take_events: copies are dropped, the rest is routed
           take ◀─── Received ◀─ acknowledgement, when what was kept is on disk
"""

from __future__ import annotations

from thatch.delivery.driver import Driver, Outcome
from thatch.delivery.stream import Send
from thatch.errors import PeerError
from thatch.protocol import wire
from thatch.protocol.records import NEIGHBOUR, PeerKey


class NeighbourSession:
    def __init__(self, driver: Driver, name: str, send: Send) -> None:
        """`send` forwards numbered events to this neighbour."""
        self.name, self.waits_for_space = name, False  # a full disk cost it an event, which comes again after a cut
        self._driver, self._send = driver, send
        self._store = ""  # behind the link
        self._ticket = 0  # of the last event that is kept
        self._has_taken = self._has_kept = False  # since the last acknowledgement

    def greeting(self) -> wire.Resume:
        """What follows `Hello`, before any event."""
        driver = self._driver
        return wire.Resume(driver.journal.identity, *driver.received_up_to.get(self.name, ("", 0)))

    def take(self, message: wire.Resume | wire.Received) -> None:
        if isinstance(message, wire.Received):
            self._driver.stream(self.name).acknowledge(message.number)
            return
        driver = self._driver
        if driver.received_up_to.get(self.name, ("", 0))[0] != message.store:
            driver.note_received(self.name, message.store, 0)
        self._store = message.store
        received = message.received if message.of == driver.journal.identity else 0
        driver.stream(self.name).attach(self._send, received)

    def take_events(self, messages: list[wire.Forward]) -> None:
        driver = self._driver
        link = driver.broker.links.get(self.name)
        if not self._store or link is None or not link.is_met:
            raise PeerError("an event before Hello and Resume")
        self._has_taken = True
        received = driver.received_up_to[self.name][1]
        if messages[0].number <= received:
            messages = [each for each in messages if each.number > received]
        if not messages:
            return
        outcomes = driver.publish([each.event for each in messages], self.name)
        for each, outcome in zip(messages, outcomes, strict=True):
            if outcome is Outcome.REFUSED:
                self.waits_for_space = True
            if not self.waits_for_space:
                driver.note_received(self.name, self._store, each.number)
        self._has_kept |= Outcome.KEPT in outcomes

    def acknowledgement(self) -> tuple[wire.Received, int] | None:
        """Of the events that came since the last one, and the ticket that it waits for; None if there were none."""
        if not self._has_taken:
            return None
        driver = self._driver
        store, received = driver.received_up_to[self.name]
        if self._has_kept:
            driver.journal.note_received(PeerKey(NEIGHBOUR, self.name), store, received)
            self._ticket = driver.journal.ticket
        self._has_taken = self._has_kept = False
        return wire.Received(received), self._ticket

    def end(self) -> None:
        """The connection has ended."""
        self._driver.stream(self.name).detach()
