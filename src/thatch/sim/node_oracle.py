"""Who must get an event from whole nodes, decided apart from any of them.

An event that its publisher's broker has acknowledged must come to each durable subscription that wants it and had
settled when the event was published, whatever fails in between: but for what lies in a loss that the network has to
admit (`Loss`), and for what its program was told that a limit has cost: no more events than it was told, of those that
came to that broker at those times. Whatever comes must be wanted. A copy under another number needs a crash to explain
it, and so does an event that comes after a later one of its publisher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from thatch.protocol.ids import publisher_of
from thatch.protocol.messages import Publish
from thatch.protocol.wire import Gap, Lost
from thatch.region.region import Region
from thatch.sim.node_movers import Mover
from thatch.sim.node_notices import Notices
from thatch.sim.oracle import Failed


@dataclass(slots=True)
class DurableInterest:
    """A durable subscription of a program."""

    program: str
    home: str
    id: str
    region: Region
    has_settled: bool = False  # its program was told so
    promised_at: float | None = None  # from then on every event that it wants must come
    is_removed: bool = False

    @property
    def name(self) -> str:
        return f"{self.program}@{self.id}"


@dataclass(frozen=True, slots=True)
class Loss:
    """What a broker acknowledged between two times is gone: it cannot know that it ever had it."""

    broker: str
    since: float
    until: float
    is_announced: bool = False  # the network has to say so


@dataclass(slots=True)
class Publication:
    event: Publish
    home: str
    at: float
    expected: list[DurableInterest]
    is_acknowledged: bool = False
    is_refused: bool = False
    taken: dict[str, float] = field(default_factory=dict)  # by broker, when it came there first
    clocks: dict[str, list[float]] = field(default_factory=dict)  # by broker, its clock whenever it came there
    released: dict[str, float] = field(default_factory=dict)  # by broker, when it first said that it has it


class NodeOracle:
    def __init__(self, way: Callable[[str, str], list[str]], excuse: Callable[[Loss], None]) -> None:
        """`way`: the brokers from one to another. `excuse` raises if the network did not say that it lost something."""
        self.keeps: dict[tuple[str, str], DurableInterest] = {}
        self.plain: dict[tuple[str, str], Region] = {}
        self.publications: dict[str, Publication] = {}
        self.losses: list[Loss] = []
        self.movers: dict[str, Mover] = {}
        self.guaranteed = self.excused = 0  # deliveries that had to happen, and did; that did not, and were lost
        self.held_up: set[str] = set()  # brokers whose disk was full: an event may be kept later than it came there
        self.noticed = 0  # deliveries that did not happen, and of which the program was told
        self._notices: dict[str, Notices] = {}  # by durable subscription
        self._taken_gaps: dict[tuple[str, Gap], float] = {}  # by broker: when it came there first
        self._released_gaps: dict[tuple[str, Gap], float] = {}  # by broker: when it first said that it has it
        self.crashed_at = -1.0  # when something last happened that may make a copy
        self.arrivals: dict[str, dict[str, None]] = {}  # by event: to whom
        self._numbers: dict[tuple[str, str], dict[int, None]] = {}  # by durable subscription and event
        self._last: dict[tuple[str, str], Publication] = {}  # by durable subscription and publisher
        self._way, self._excuse = way, excuse
        self.former_ways: list[Callable[[str, str], list[str]]] = []  # before a broker was lost for good

    def publish(self, event: Publish, home: str, now: float, is_advertised: bool = True) -> None:
        """`is_advertised`: what its publisher advertised has settled, perhaps except behind brokers that are away."""
        wanted = [
            each
            for each in self.keeps.values()
            if is_advertised and each.promised_at is not None and each.region.contains(event.event)
        ]
        self.publications[event.id] = Publication(event, home, now, wanted)

    def note_crash(self, at: float) -> None:
        """What is published up to then may come twice."""
        self.crashed_at = max(self.crashed_at, at)
        for mover in self.movers.values():
            mover.void()

    def take(self, broker: str, arrived: Publish | Gap, now: float, wall: float) -> None:
        """An event has come to a broker, whose clock says `wall`, or what a limit has cost."""
        if isinstance(arrived, Gap):
            self._taken_gaps.setdefault((broker, arrived), now)
        elif arrived.id in self.publications:
            self.publications[arrived.id].taken.setdefault(broker, now)
            self.publications[arrived.id].clocks.setdefault(broker, []).append(wall)

    def step_clock(self, broker: str, seconds: float) -> None:
        """Of events that wait there for room on the disk, the clock says another time when they are kept."""
        for publication in self.publications.values() if broker in self.held_up else ():
            clocks = publication.clocks.get(broker)
            if clocks:
                clocks.append(min(clocks) + seconds)

    def release(self, broker: str, arrived: str | Gap, now: float) -> Publication | None:
        """A broker says that it has an event, or what a limit has cost. The event; None if it was refused, or that."""
        if isinstance(arrived, Gap):
            self._released_gaps.setdefault((broker, arrived), now)
            return None
        publication = self.publications.get(arrived)
        if publication is None or publication.is_refused:
            return None
        publication.released.setdefault(broker, now)
        return publication

    def tell(self, keep: DurableInterest, lost: Lost) -> None:
        """A program hears that limits have cost a durable subscription events."""
        self._notices_of(keep).add(lost)

    def _notices_of(self, keep: DurableInterest) -> Notices:
        def may_speak_of(notice: Lost, event: str) -> bool:
            return self.is_in(notice, self.publications[event], keep)

        return self._notices.setdefault(keep.name, Notices(may_speak_of))

    def may_be_told(self, publication: Publication, keep: DurableInterest) -> bool:
        """Whether what a program has heard may speak of an event."""
        return self._notices_of(keep).may_cover(publication.event.id)

    def is_in(self, notice: Gap | Lost, publication: Publication, keep: DurableInterest) -> bool:
        """Whether an event is among those that a notice speaks of: kept on its way by the one whose limit it was, for
        the next one, when it came there."""
        if not notice.sender:  # several, which it does not name
            return any(notice.since <= at <= notice.until for clocks in publication.clocks.values() for at in clocks)
        if not self._is_on_its_way(notice, publication, keep):
            return False
        clocks = publication.clocks.get(notice.sender, ())
        if notice.sender in self.held_up:
            return any(at <= notice.until for at in clocks)
        return any(notice.since <= at <= notice.until for at in clocks)

    def _is_on_its_way(self, notice: Gap | Lost, publication: Publication, keep: DurableInterest) -> bool:
        """Whether the way of an event leads by the sender of a notice to the receiver. It may come to the sender by a
        new link, and be kept there for a broker that is lost, until those behind that one are attached in its place."""
        ways = (self._way, *self.former_ways)
        come = [way(publication.home, notice.sender) for way in ways]
        go = [[*way(notice.sender, keep.home), keep.name] for way in ways]
        return any(
            bool(before) and after[:2] == [notice.sender, notice.receiver] and set(before).isdisjoint(after[1:])
            for before in come
            for after in go
        )

    def deliver(self, keep: DurableInterest, number: int, event: Publish) -> None:
        if not keep.region.contains(event.event):
            raise Failed(f"event {event.id} {event.event} came to {keep.name}, which never wanted it")
        key = keep.name, event.id
        self.arrivals.setdefault(event.id, {})[keep.name] = None
        numbers = self._numbers.setdefault(key, {})
        is_first = not numbers  # else it comes again, as all does that a reader has not acknowledged when it was away
        numbers[number] = None
        publication = self.publications.get(event.id)
        if publication is None:
            raise Failed(f"event {event.id}, which nobody published, came to {keep.name}")
        if len(numbers) > 1 and self.crashed_at < publication.at:
            raise Failed(f"event {event.id} came to {keep.name} as {list(numbers)}, and nothing had crashed")
        if is_first:
            self._check_order(keep, publication)

    def _check_order(self, keep: DurableInterest, publication: Publication) -> None:
        """Events of one publisher come in the order in which they were published."""
        key = keep.name, publisher_of(publication.event.id)
        last = self._last.get(key, publication)
        if publication.at < last.at and self.crashed_at < publication.at:
            raise Failed(
                f"event {publication.event.id} came to {keep.name} after {last.event.id}, and nothing had crashed"
            )
        self._last[key] = max(publication, last, key=lambda each: each.at)

    def deliver_plainly(self, program: str, ids: tuple[str, ...], event: Publish) -> None:
        for id in ids:
            if not self.plain[program, id].contains(event.event):
                raise Failed(f"event {event.id} {event.event} came to {program} for {id}, which never wanted it")
            self.arrivals.setdefault(event.id, {})[f"{program}/{id}"] = None

    def has_come(self, keep: DurableInterest, event: str) -> bool:
        return (keep.name, event) in self._numbers

    def remove(self, program: str, id: str) -> None:
        self.keeps.pop((program, id)).is_removed = True

    def void(self, keep: DurableInterest, broker: str) -> None:
        """What a broker knew of a subscription is lost: of what is published from now on nothing is promised to it, nor
        of what is on its way through there."""
        keep.promised_at = None
        for publication in self.publications.values():
            if broker in self._way(publication.home, keep.home):
                publication.expected = [each for each in publication.expected if each is not keep]

    def check_all(self) -> None:
        """At rest: whatever had to come has come."""
        for publication in self.publications.values():
            if publication.is_refused or not publication.is_acknowledged:
                continue
            for keep in publication.expected:
                if keep.is_removed:
                    continue
                if self.has_come(keep, publication.event.id):
                    self.guaranteed += 1
                elif (loss := self.loss_of(publication, keep)) is not None:
                    self.excused += 1
                    self._excuse(loss)
                elif self._notices_of(keep).cover(publication.event.id):
                    self.noticed += 1
                else:
                    raise Failed(
                        f"event {publication.event.id}, published at {publication.at:g} at {publication.home} and "
                        f"acknowledged, never came to {keep.name} at {keep.home}; it came to {publication.taken}"
                    )
        for publication in self.publications.values():
            publication.expected.clear()
        for mover in self.movers.values():
            self.guaranteed += mover.check(self.arrivals, self._is_due)

    def _is_due(self, event: str) -> bool:
        """Whether the publisher's broker has taken an event."""
        publication = self.publications[event]
        return publication.is_acknowledged and not publication.is_refused

    def loss_of(self, publication: Publication, keep: DurableInterest) -> Loss | None:
        """The loss that an event was in, on its way to a durable subscription; or that what tells that a limit has cost
        it was in."""
        ways = [way(publication.home, keep.home) for way in (self._way, *self.former_ways)]
        for broker in dict.fromkeys(broker for way in ways for broker in way):
            for loss in self.losses:
                is_in = publication.released.get(broker, loss.until) >= loss.since
                if loss.broker == broker and is_in and publication.taken.get(broker, loss.until + 1) <= loss.until:
                    return loss
                if loss.broker == broker and self._is_gap_in(loss, publication, keep):
                    return loss
        return None

    def _is_gap_in(self, loss: Loss, publication: Publication, keep: DurableInterest) -> bool:
        """Whether a broker has lost a gap that may speak of an event: as `loss_of`."""
        return any(
            broker == loss.broker
            and at <= loss.until
            and self._released_gaps.get((broker, gap), loss.until) >= loss.since
            and self.is_in(gap, publication, keep)
            for (broker, gap), at in self._taken_gaps.items()
        )
