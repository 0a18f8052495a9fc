"""What whole nodes say, and in which order: flushes behind backlogs, commits that are slow, disks that are full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thatch.broker import Policy, Settings
from thatch.delivery.postponed import Postponed
from thatch.protocol.messages import Advertise, Flush, Message, Publish, Settled, Subscribe, Synced
from thatch.sim.network import Clauses
from thatch.sim.node_clients import HOME, Program
from thatch.sim.node_network import NodeNetwork, NodeObserver
from thatch.sim.node_process import NeighbourEnd, NodeEnd, NodeProcess
from thatch.sim.run import clauses_of_scripts

CLAUSES: list[Clauses] = []


class Seen(NodeObserver):
    def __init__(self) -> None:
        self.said_by: list[tuple[str, str, Message]] = []  # to neighbours: who, to whom, what
        self.got: dict[str, list[str]] = {}  # by program, the ids of the events that it got, in order

    def said(self, process: NodeProcess, end: NodeEnd, messages: list[Message]) -> None:
        if isinstance(end, NeighbourEnd):
            self.said_by += [(process.machine.name, end.name, each) for each in messages]

    def delivered(self, program: Program, ids: tuple[str, ...], event: Publish) -> None:
        self.got.setdefault(program.name, []).append(event.id)

    def handed_on(self, program: Program, id: str, number: int, event: Publish) -> None:
        self.delivered(program, (id,), event)


class Nodes:
    """A chain of whole nodes, and programs at them."""

    def __init__(self, count: int, latency: float = 0.03, commit_seconds: float = 0.001) -> None:
        if not CLAUSES:
            CLAUSES.append(clauses_of_scripts())
        self.seen = Seen()
        settings = Settings("advertisements", Policy("exact"), holds_events=True)
        self.network = NodeNetwork(CLAUSES[0], settings, 1, latency, self.seen)
        names = [f"B{at + 1}" for at in range(count)]
        for at, name in enumerate(names):
            self.network.add_machine(name, names[at + 1 : at + 2], names[max(at - 1, 0) : at], commit_seconds)
        for machine in self.network.machines.values():
            self.network.start(machine)

    def program(self, name: str, home: str) -> Program:
        program = self.network.add_program(name, home)
        program.come()
        return program

    def run(self, seconds: float) -> None:
        self.network.agenda.run(self.network.now + seconds)

    def said(self, *kinds: type[Message]) -> list[tuple[str, str, str]]:
        """What nodes have said to their neighbours, of these kinds."""
        return [(by, to, type(each).__name__) for by, to, each in self.seen.said_by if isinstance(each, kinds)]


def event(at: int) -> dict[str, Any]:
    return {"x": at % 12, "y": 0}


def test_a_flush_is_answered_behind_a_backlog_whatever_settles_meanwhile() -> None:
    """T1.1, HOLES 6: flush, then subscribe on the same link; a window of 600 bytes, and events of 20,000."""
    nodes = Nodes(3)
    ann, bob = nodes.program("ann", "B1"), nodes.program("bob", "B3")
    bob.advertise("a", "TRUE")
    ann.subscribe("s", "TRUE")
    nodes.run(3.0)
    for at in range(300):
        bob.publish(event(at))
    nodes.run(0.01)
    ann._say(ann.state.flush(HOME))
    ann.subscribe("t", "x = 50 OR x < 3")
    nodes.run(1.0)
    assert ann.state.is_settled(HOME, "subscriptions", "t"), "a subscription does not wait for a backlog"
    came = nodes.seen.got["ann"]
    assert len(came) < 300 and not ann.state.is_flushed(HOME)
    while not ann.state.is_flushed(HOME):
        assert len(came) < 300 or nodes.network.now < 60.0
        nodes.run(0.005)
    assert len(came) == 300 and came == sorted(came, key=lambda id: int(id.rpartition(":")[2]))


def test_a_flush_that_meets_a_cut_is_answered_behind_what_the_cut_has_held_up() -> None:
    """T1.6: the neighbour is away, and comes back with what it kept."""
    nodes = Nodes(2)
    ann, bob = nodes.program("ann", "B1"), nodes.program("bob", "B2")
    bob.advertise("a", "TRUE")
    ann.subscribe("s", "TRUE")
    nodes.run(3.0)
    for at in range(60):
        bob.publish(event(at))
    nodes.run(0.05)
    ann._say(ann.state.flush(HOME))
    nodes.network.cut("B1", "B2", late=False, seconds=0.0)
    nodes.run(30.0)
    assert not ann.state.is_flushed(HOME) and len(nodes.seen.got.get("ann", [])) < 60
    nodes.network.heal("B1", "B2")
    while not ann.state.is_flushed(HOME):
        nodes.run(0.005)
    assert len(nodes.seen.got["ann"]) == 60


def test_the_answer_to_synced_does_not_overtake_what_waits_for_its_commit() -> None:
    """T1.2: a commit of B2 takes a second. B1 has a new advertisement; B2's subscription to it is said first, then that
    all has settled."""
    nodes = Nodes(2)
    ann, bob = nodes.program("ann", "B1"), nodes.program("bob", "B2")
    nodes.run(3.0)
    bob.subscribe("s", "x < 5")
    nodes.run(1.0)
    nodes.network.cut("B1", "B2", late=False, seconds=0.0)
    ann.advertise("a", "TRUE")
    nodes.run(1.0)
    process = nodes.network.machines["B2"].process
    assert process is not None
    process.store.seconds = 1.0
    nodes.seen.said_by.clear()
    nodes.network.heal("B1", "B2")
    ann._say(ann.state.flush(HOME))
    nodes.run(10.0)
    (synced,) = [each for by, _, each in nodes.seen.said_by if by == "B1" and isinstance(each, Synced)]
    answers = [each for by, _, each in nodes.seen.said_by if by == "B2" and not isinstance(each, Synced)]
    kinds = [type(each).__name__ for each in answers]
    settled = answers.index(Settled(synced.seq)) if Settled(synced.seq) in answers else kinds.index("Settled")
    assert kinds.index("Subscribe") < settled
    assert kinds.index("Subscribe") < kinds.index("Flushed")
    assert {type(each) for by, _, each in nodes.seen.said_by if by == "B1"} & {Flush, Advertise, Subscribe} == {Flush}


def test_events_of_one_publisher_stay_in_order_while_a_disk_on_the_way_is_full() -> None:
    """HOLES 13: B2's disk is full for a while. What it refuses waits, and what the same publisher publishes after it;
    events of another publisher and control messages go on."""
    nodes = Nodes(3, latency=0.001)
    ann, bob = nodes.program("ann", "B3"), nodes.program("bob", "B2")
    cat, dan = nodes.program("cat", "B1"), nodes.program("dan", "B1")
    for program in (cat, dan):
        program.advertise("a", "TRUE")
    bob.advertise("a", "x = 0")
    ann.keep("k", "x < 6")
    bob.subscribe("s", "x >= 6")
    nodes.run(3.0)
    first, middle = (nodes.network.machines[name].process for name in ("B1", "B2"))
    assert first is not None and middle is not None
    stream = first.driver.stream("B2")
    stream.limits = replace(stream.limits, unacknowledged_bytes_max=2**20)
    for end in middle.ends:
        if isinstance(end, NeighbourEnd) and end.session is not None and end.name == "B1":
            end.session._postponed = Postponed(2**20)
    middle.store.full_until = nodes.network.now + 2.0
    for at in range(120):
        cat.publish(event(at))
        if 20 <= at < 60:
            dan.publish({"x": 11, "y": 11})
        if at == 60:
            came = nodes.seen.got
            assert len([id for id in came["bob"] if id.startswith("dan")]) == 40
            assert middle.store.is_full and len([id for id in came["ann"] if id.startswith("cat")]) < 10
            cat.subscribe("c", "x = 0")
        if at == 64:
            assert "B1/cat/c" in middle.driver.broker.received_from("subscriptions", "B1")
        nodes.run(0.025)
    nodes.run(10.0)
    for name, count in (("ann", 60), ("bob", 60)):
        numbers = [int(id.rpartition(":")[2]) for id in nodes.seen.got[name] if id.startswith("cat")]
        assert numbers == sorted(numbers) and len(numbers) == count, name
    assert middle.driver.refused_for_space


def test_what_is_too_much_to_wait_for_a_full_disk_comes_again_in_order() -> None:
    nodes = Nodes(2, latency=0.001)
    ann, cat = nodes.program("ann", "B2"), nodes.program("cat", "B1")
    cat.advertise("a", "TRUE")
    ann.keep("k", "TRUE")
    nodes.run(3.0)
    process = nodes.network.machines["B2"].process
    assert process is not None
    ends = [each for each in process.ends if isinstance(each, NeighbourEnd) and each.session is not None]
    assert ends[0].session is not None
    ends[0].session._postponed._bytes_max = 400
    process.store.full_until = nodes.network.now + 1.0
    for at in range(60):
        cat.publish(event(at))
        nodes.run(0.02)
    nodes.run(10.0)
    assert ends[0].reason.startswith("there is room"), "it was to begin again"
    assert [int(id.rpartition(":")[2]) for id in nodes.seen.got["ann"]] == list(range(1, 61))


def test_a_flush_is_answered_behind_events_that_wait_for_a_full_disk() -> None:
    nodes = Nodes(3, latency=0.001)
    ann, bob, cat = nodes.program("ann", "B3"), nodes.program("bob", "B3"), nodes.program("cat", "B1")
    cat.advertise("a", "TRUE")
    ann.subscribe("s", "TRUE")
    bob.keep("k", "TRUE")
    nodes.run(3.0)
    middle = nodes.network.machines["B2"].process
    assert middle is not None
    middle.store.full_until = nodes.network.now + 3.0
    for at in range(6):  # fewer than the window takes: they wait at B2, not at B1
        cat.publish(event(at))
        nodes.run(0.05)
    ann._say(ann.state.flush(HOME))
    nodes.run(0.5)
    assert not ann.state.is_flushed(HOME) and len(nodes.seen.got["ann"]) < 6
    while not ann.state.is_flushed(HOME):
        nodes.run(0.005)
    assert len(nodes.seen.got["ann"]) == 6


def test_a_flush_is_not_answered_while_events_before_it_cannot_be_read() -> None:
    """They are sent again on the next connection, when the space has grown here, and so is the flush."""
    nodes = Nodes(2, latency=0.001)
    ann = nodes.program("ann", "B1")
    nodes.run(3.2)
    process = nodes.network.machines["B1"].process
    assert process is not None
    for end in process.ends:
        if isinstance(end, NeighbourEnd) and end.session is not None:
            end.session._has_unread = True
    ann.flush()
    nodes.run(0.02)
    assert not ann.state.is_flushed(HOME)
    nodes.run(3.0)
    assert ann.state.is_flushed(HOME)
