"""What a limit costs a durable subscription its owner is told: on which link, between which times, how many at most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from helpers.peers import durable_queue, neighbour
from thatch import Space
from thatch.broker import Policy, Settings
from thatch.delivery.clock import Stamp
from thatch.delivery.journal import SUSPECTED
from thatch.delivery.losses import GAPS_MAX, LossLog
from thatch.delivery.neighbour import encoded_entries
from thatch.delivery.stream import Limits, Stream
from thatch.node.store import Store
from thatch.protocol.codec import encode
from thatch.protocol.kinds import Peer
from thatch.protocol.messages import Publish
from thatch.protocol.wire import Gap, Lost, Notice, decoded_gap, encoded_forward, is_gap
from thatch.sim.network import Clauses
from thatch.sim.node_clients import Program
from thatch.sim.node_network import NodeNetwork, NodeObserver
from thatch.sim.node_process import EPOCH

FIRST = 1 << 40
SPACE = Space.parse("x int not null 0..99")
LIMITS = Limits(bytes_max=1_000, seconds_max=10.0, memory_bytes_max=0, unacknowledged_bytes_max=10_000)


def at(seconds: float) -> Stamp:
    return Stamp(1e9 + seconds, seconds)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s", "B1")


def stream_on(store: Store, limits: Limits = LIMITS) -> Stream:
    return Stream(neighbour("B2"), store, limits, FIRST, broker="B1")


def written(store: Store) -> Store:
    """The store, opened again by the next node."""
    store.start(lambda *_: None, lambda _: None)
    store.stop()
    return Store(store.path, "B1")


def rows(store: Store) -> list[tuple[int, int]]:
    """Numbers and kinds of the entries of the stream, after those of the first life."""
    return [(row.number - FIRST, row.entry) for row in store.stored(neighbour("B2"))]


# --- A gap is an entry of the stream ---------------------------------------------------------------------------------


def test_a_gap_is_an_entry_of_the_stream_and_outlives_a_crash(store: Store) -> None:
    stream = stream_on(store)
    for number in range(30):
        stream.append(b"x" * 100, True, at(number))
    (gap,) = stream.gaps
    assert gap == Gap(FIRST + gap.count, gap.count, 1e9, 1e9 + gap.count - 1, "B1", "B2")
    assert gap.count == stream.lost == 30 - stream.on_disk.count and stream.on_disk.bytes <= 1_000
    again = written(store)
    assert rows(again) == [(gap.count, 2), *((number, 0) for number in range(gap.count + 1, 31))]
    restored = stream_on(again)
    for row in again.stored(neighbour("B2")):
        restored.restore(row)
    restored.counted = 2 << 40  # of the next life
    assert list(restored.gaps) == [gap] and restored.oldest == gap.number
    restored.append(b"x" * 900, True, at(40))
    (joined,) = restored.gaps
    assert joined.since == 1e9 and joined.count == 30 and joined.until == 1e9 + 29
    last = written(again)
    assert [entry for _, entry in rows(last)] == [2, 0]
    last.stop()


def test_events_that_nobody_has_asked_for_go_first(store: Store) -> None:
    stream = stream_on(store)
    for number in range(10):
        stream.append(b"a" * 60, True, at(number))
        stream.append(b"s" * 40, True, at(number), None, SUSPECTED)
    for number in range(10, 17):
        asked_lost = stream.lost - stream.suspected_lost
        assert not asked_lost and stream.on_disk.asked.count == number
        assert stream.suspected_lost == 10 - stream.on_disk.suspected.count
        stream.append(b"a" * 60, True, at(number))
    assert stream.suspected_lost == 10 < stream.lost and stream.on_disk.asked.count < 17
    (gap,) = stream.gaps
    assert gap.count == stream.lost and gap.since == 1e9
    again = written(store)
    kept = [entry for _, entry in rows(again)]
    assert kept.count(SUSPECTED) == 0 and kept.count(0) == stream.on_disk.asked.count and kept.count(2) == 1
    again.stop()


def test_what_was_sent_is_lost_only_if_it_is_not_acknowledged(store: Store) -> None:
    stream, sent = stream_on(store), list[bytes]()
    stream.attach(lambda numbers, entries: sent.extend(entries), 0)
    store.start(lambda call, *arguments: call(*arguments), lambda _: None)
    for number in range(30):
        stream.append(b"x" * 100, True, at(number))
    assert stream.gaps and not any(map(is_gap, sent)), "all of it is under way"
    stream.acknowledge(FIRST + 30)
    assert stream.is_empty
    store.stop()


def test_a_receiver_gets_a_gap_before_what_is_kept_and_acknowledges_it(store: Store) -> None:
    stream, sent = stream_on(store), list[bytes]()
    for number in range(30):
        stream.append(b"x" * 100, True, at(number))
    count = stream.lost
    calls: list[tuple[object, ...]] = []
    store.start(lambda *call: calls.append(call), lambda _: None)
    stream.attach(lambda numbers, entries: sent.extend(entries), 0)
    store.stop()
    for call, *arguments in calls:
        call(*arguments)  # type: ignore[operator]
    assert [is_gap(each) for each in sent] == [True, *[False] * (30 - count)]
    assert decoded_gap(sent[0]).count == count
    stream.acknowledge(FIRST + count)
    assert not stream.gaps


def test_gaps_of_one_stream_are_few_whatever_a_neighbour_says(store: Store) -> None:
    stream = stream_on(store)
    for number in range(10_000):
        stream.append_gap(Gap(number, 2**62, 5.0, 6.0, f"S{number}", "R"), at(number))
    gaps = list(stream.gaps)
    assert len(gaps) <= GAPS_MAX and sum(each.count for each in gaps) >= 2**63 - 1
    assert all(each.count < 2**63 for each in gaps) and any(each.sender == "" for each in gaps)
    again = written(store)
    assert len(rows(again)) == len(gaps)
    again.stop()


def test_the_log_has_a_line_a_minute_for_each_stream(caplog: pytest.LogCaptureFixture) -> None:
    log = LossLog("link to B2")
    for second in range(200):
        log.note(10 * second, second, float(second))
    said = [each.getMessage() for each in caplog.records]
    assert said[0].startswith("link to B2: 10 events lost to its limits, 1 of them") and len(said) == 4


# --- Whoever may be concerned is told --------------------------------------------------------------------------------


class Heard(NodeObserver):
    def __init__(self) -> None:
        self.losses: list[tuple[str, Lost]] = []
        self.got: list[tuple[str, int]] = []

    def lost_of(self, name: str) -> list[Lost]:
        return [lost for program, lost in self.losses if program == name]

    def lost(self, program: Program, lost: Lost) -> None:
        self.losses.append((program.name, lost))

    def handed_on(self, program: Program, id: str, number: int, event: Publish) -> None:
        self.got.append((program.name, event.event["x"]))


class Chain(NodeNetwork):
    """B1 - B2 - B3, where a program of each broker has its name: p1, c1, ...; they keep little for one another."""

    def __init__(self, kept_bytes: int = 400, kept_seconds: float = 1e9) -> None:
        self.heard = Heard()
        settings = Settings("advertisements", Policy("exact"), holds_events=True)
        super().__init__(Clauses(SPACE), settings, 0, 0.001, self.heard)
        self.kept_bytes, self.kept_seconds = kept_bytes, kept_seconds
        for name, dials, accepts in (("B1", ["B2"], []), ("B2", ["B3"], ["B1"]), ("B3", [], ["B2"])):
            self.start(self.add_machine(name, dials, accepts, 0.001))
        for name in ("p1", "c1", "c2", "c3", "p3"):
            self.add_program(name, f"B{name[1]}").come()
        self.passes(1.0)

    def passes(self, seconds: float) -> None:
        self.agenda.run(self.now + seconds)

    def publish(self, name: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.programs[name].publish({"x": number})
            self.passes(0.01)


@pytest.mark.parametrize("killed", ["", "B1 before B2 returns", "B2 before the reader is told"])
def test_the_owner_is_told_what_a_limit_on_the_way_has_cost_whoever_crashes(killed: str) -> None:
    """T1.8 and hole 8: two hops away, nobody knew that events had gone."""
    chain = Chain()
    heard = chain.heard
    for name in ("p1", "p3"):
        chain.programs[name].advertise("a", "TRUE")
    chain.programs["c3"].keep("k", "TRUE")
    chain.programs["c1"].keep("k", "TRUE")
    chain.programs["c2"].keep("nothing", "x < 0")
    chain.passes(2.0)
    chain.kill(chain.machines["B2"], 1.0)
    since = EPOCH + chain.now
    chain.publish("p1", range(40))
    chain.passes(1.0)
    if killed.startswith("B1"):
        chain.kill(chain.machines["B1"], 0.0)
        chain.start(chain.machines["B1"])
    if killed.startswith("B2"):
        chain.programs["c3"].leave()
        chain.kill(chain.machines["B3"], 1.0)
    chain.start(chain.machines["B2"])
    chain.passes(3.0)
    if killed.startswith("B2"):
        chain.kill(chain.machines["B2"], 0.0)
        chain.start(chain.machines["B2"])
        chain.start(chain.machines["B3"])
        chain.programs["c3"].come()
    chain.passes(10.0)
    got = [x for name, x in heard.got if name == "c3"]
    assert 39 in got and 0 not in got
    lost = [each for each in heard.lost_of("c3") if each.sender == "B1"]
    assert sum(each.count for each in lost) >= 40 - len(set(got)) - sum(
        each.count for each in heard.lost_of("c3") if each.sender != "B1"
    )
    assert {each.receiver for each in lost} == {"B2"}
    assert since <= min(each.since for each in lost) <= max(each.until for each in lost) <= since + 1.0
    assert not heard.lost_of("c1") and {x for name, x in heard.got if name == "c1"} == set(range(40))
    for machine in chain.machines.values():
        assert not any(machine.disk.events.values()), "all is acknowledged, and gaps too"


def test_what_is_too_old_is_told_too() -> None:
    chain = Chain(kept_bytes=2**30, kept_seconds=2.0)
    chain.programs["c1"].keep("k", "TRUE")
    chain.programs["p1"].advertise("a", "TRUE")
    chain.passes(1.0)
    chain.programs["c1"].leave()
    chain.publish("p1", range(5))
    chain.passes(5.0)
    chain.programs["c1"].come()
    chain.passes(2.0)
    ((_, lost),) = chain.heard.losses
    assert (lost.count, lost.sender, lost.receiver) == (5, "B1", "c1@k") and not chain.heard.got
    assert not any(chain.machines["B1"].disk.events.values()), "it is acknowledged"


def test_a_client_of_an_older_version_gets_a_notice() -> None:
    chain = Chain()
    chain.programs["c1"].keep("k", "TRUE")
    chain.passes(1.0)
    process = chain.machines["B1"].process
    assert process is not None
    (queue,) = process.queues
    end = next(each for each in process.ends if each.name == "c1")
    gap = msgspec.msgpack.encode(Gap(5, 7, 1.0, 2.0, "B8", "B9"))
    assert msgspec.msgpack.decode(queue._encoded(5, gap, end), type=Lost).count == 7
    end.peer = Peer(True, 4)
    notice = msgspec.msgpack.decode(queue._encoded(5, gap, end), type=Notice)
    assert (notice.id, notice.count) == ("k", 7) and "by B8 for B9" in notice.reason
    assert queue.stream.peer == durable_queue("c1@k")


def test_a_neighbour_that_cannot_skip_a_gap_is_not_told_of_it() -> None:
    event, gap = encode(Publish("ann:1", {"x": 1})), encode(Gap(7, 3, 1.0, 2.0, "B1", "B2"))
    assert encoded_entries((7, 8), (gap, event), Peer(False)) == [encoded_forward(8, event)]
    assert encoded_entries((7, 8), (gap, event), Peer(True, 4)) == [gap, encoded_forward(8, event)]
