"""Who must get an event, decided by brute force and apart from any broker.

A client must get an event that one of its subscriptions wants if that had settled when the event was published, if the
publisher's advertisement had, and if every wire on the way was up and stayed up until the last copy of the event had
landed. A subscription that was replaced meanwhile counts where the old and the new one want the event; one that moves
with its client counts on. Losing a disk, or changing the overlay, voids what had settled until all is at rest again.
Whatever else arrives must be wanted, and nothing arrives twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thatch.protocol.messages import Publish
from thatch.region.region import Region
from thatch.sim.network import Wire


class Failed(AssertionError):
    """A run broke a promise."""


@dataclass(slots=True)
class Interest:
    """A subscription of a client at one broker, in all its versions."""

    client: str
    broker: str
    id: str
    versions: list[tuple[float, Region]]
    expires: float | None = None
    removed: float | None = None
    settled: int = -1  # the last version that is known to have settled
    is_leaving: bool = False  # its client has settled elsewhere: from there comes what is published from now on

    def wants(self, event: dict[str, Any]) -> bool:
        return self.versions[-1][1].contains(event)

    def must_get(self, event: dict[str, Any], settled: int, until: float) -> bool:
        """Whether every version from one that had settled on, up to a time, wants an event."""
        if (self.removed is not None and self.removed <= until) or (self.expires is not None and self.expires <= until):
            return False
        return all(region.contains(event) for sent, region in self.versions[settled:] if sent <= until)


@dataclass(frozen=True, slots=True)
class Expected:
    interest: Interest
    settled: int  # the version that had, when the event was published
    wires: tuple[tuple[Wire, int], ...]  # with their sessions


@dataclass(slots=True)
class Flight:
    event: Publish
    published: float
    expected: list[Expected] = field(default_factory=list)
    is_refused: bool = False


class Oracle:
    def __init__(self) -> None:
        self.interests: dict[tuple[str, str, str], Interest] = {}
        self.past: list[Interest] = []
        self.delivered: dict[tuple[str, str], int] = {}  # (client, event) -> times
        self.guaranteed = 0  # deliveries that had to happen, and did
        self._flights: dict[str, Flight] = {}

    def publish(self, event: Publish, now: float, expected: list[Expected]) -> None:
        self._flights[event.id] = Flight(event, now, expected)

    def note_refused(self, event: str) -> None:
        if event in self._flights:
            self._flights[event].is_refused = True

    def deliver(self, client: str, event: Publish, ids: tuple[str, ...], broker: str) -> None:
        key = client, event.id
        self.delivered[key] = self.delivered.get(key, 0) + 1
        if self.delivered[key] > 1:
            raise Failed(f"event {event.id} came to {client} {self.delivered[key]} times")
        for id in ids:
            known = self._all(client, broker, id)
            if not any(region.contains(event.event) for each in known for _, region in each.versions):
                raise Failed(f"event {event.id} {event.event} came to {client} for {id}, which never wanted it")

    def _all(self, client: str, broker: str, id: str) -> list[Interest]:
        present = self.interests.get((client, broker, id))
        past = [each for each in self.past if (each.client, each.broker, each.id) == (client, broker, id)]
        return past if present is None else [*past, present]

    def land(self, event: str, now: float, is_whole: Callable[[Wire, int], bool]) -> None:
        """No copy is on its way any longer: every client that had to get it has it."""
        flight = self._flights.get(event)
        if flight is None or flight.is_refused:
            return
        del self._flights[event]
        for each in flight.expected:
            interest = each.interest
            if not interest.must_get(flight.event.event, each.settled, now) or not all(
                is_whole(*wire) for wire in each.wires
            ):
                continue
            if (interest.client, event) not in self.delivered:
                raise Failed(
                    f"event {event} {flight.event.event}, published at {flight.published:g}, never came to "
                    f"{interest.client} at {interest.broker} for {interest.id}"
                )
            self.guaranteed += 1
