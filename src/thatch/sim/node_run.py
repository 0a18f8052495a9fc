"""Run a script of whole nodes, and check every promise: each acknowledgement when it is given, each delivery at rest.

run_nodes(draw_nodes(seed))       raises `Failed`, or returns what was seen
shortest_node_prefix(script)      the least number of steps that still fails
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thatch.broker import Cells, Policy, Settings
from thatch.protocol import wire
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, durable_name, overlay_id, split_durable_name
from thatch.protocol.messages import Accepted, Message, Publish, Refused
from thatch.protocol.records import DURABLE_QUEUE, PeerKey, SubscriptionKey, SubscriptionRecord
from thatch.sim.network import Clauses
from thatch.sim.node_clients import HOME, Program
from thatch.sim.node_disks import gaps_on_disk, is_behind, is_on_disk, is_refused
from thatch.sim.node_growth import NEW_REFUSED, NodeGrowth
from thatch.sim.node_move import Move
from thatch.sim.node_movers import BEHIND, CLAUSE_BEHIND, ID, Mover
from thatch.sim.node_network import NodeNetwork, NodeObserver
from thatch.sim.node_oracle import DurableInterest, Loss, NodeOracle, Publication
from thatch.sim.node_process import EPOCH, ClientEnd, Machine, NeighbourEnd, NodeEnd, NodeProcess
from thatch.sim.node_script import NodeScript, brokers_of
from thatch.sim.oracle import Failed
from thatch.sim.run import clauses_of_scripts

REST_MAX = 60.0  # seconds in which all is at rest when faults have ended
POLL = 0.25
MOVE_SECONDS = 0.01  # between looks at a program that moves
SLACK = 0.1  # seconds of an interval


@dataclass(frozen=True, slots=True)
class NodesObserved:
    """What was observed in a run."""

    trace: str
    guaranteed: int
    excused: int
    noticed: int
    steps: Counter[str]  # that did something, by kind


def run_nodes(script: NodeScript, clauses: Clauses | None = None) -> NodesObserved:
    """`clauses` of earlier runs save working them out again."""
    return NodeRun(script, clauses).all()


def shortest_node_prefix(script: NodeScript) -> tuple[int, str]:
    """The shortest prefix of a failing script that still fails, and how. The last step of it is the culprit."""
    for steps in range(len(script.steps) + 1):
        try:
            run_nodes(script.prefix(steps))
        except Exception as error:
            return steps, f"{type(error).__name__}: {error}"
    raise ValueError("the script does not fail")


class NodeRun(NodeObserver):
    def __init__(self, script: NodeScript, clauses: Clauses | None = None) -> None:
        self.script = script
        cells = Cells(("x", "y"), bits=2) if script.has_cells else None
        settings = Settings(script.routing, Policy("exact"), cells=cells, holds_events=True)  # type: ignore[arg-type]
        self.network = NodeNetwork(clauses or clauses_of_scripts(), settings, script.seed, script.latency, self)
        self.move = Move(script.links, self.network, self._publish_everywhere)
        self.oracle = NodeOracle(self.move.way, self._check_announced)
        self.done, self._strange = Counter[str](), self.network.strange
        self.growth = NodeGrowth(self.network.clauses, self.move.neighbours)
        self._refused: dict[tuple[Machine, str], None] = {}  # who was refused, and by whom
        self._to_refuse: dict[tuple[str, str], None] = {}  # by whom, and who has to be
        self._has_steps = False  # of clocks
        self._has_copies = False  # a store was put back, lost, or copied
        self._copied_at: dict[str, float] = {}
        self._voided: dict[str, None] = {}  # durable subscriptions to which nothing is promised before the next rest
        self._unaware: dict[str, None] = {}  # brokers that may not know what has settled, before the next rest
        network, self.network.away_seconds = self.network, script.away_seconds
        network.kept_bytes, network.kept_seconds = script.kept_bytes, script.kept_seconds
        for name, seconds in zip(brokers_of(script), script.commit_seconds, strict=True):
            dials = [other for one, other in script.links if one == name]
            network.add_machine(name, dials, [one for one, other in script.links if other == name], seconds)
        for machine in network.machines.values():
            network.start(machine)
        for name, home in script.homes.items():
            network.add_program(name, home).come()

    def all(self) -> NodesObserved:
        spent = 0.0  # at rest, beyond what the script knows of
        for step in self.script.steps:
            self.network.agenda.run(step.at + spent)
            if getattr(self, f"_{step.kind}")(*step.args) is not False:
                self.done[step.kind] += 1
            spent = max(spent, self.network.now - step.at)
        oracle = self.oracle
        return NodesObserved(self.network.trace, oracle.guaranteed, oracle.excused, oracle.noticed, self.done)

    # --- Steps of programs --------------------------------------------------------------------------------------------

    def _advertise(self, name: str, where: str) -> None:
        self.network.programs[name].advertise("a", where)

    def _subscribe(self, name: str, id: str, where: str) -> None:
        self.oracle.plain[name, id] = self.growth.region(where)
        self.network.programs[name].subscribe(id, where)

    def _keep(self, name: str, id: str, where: str) -> None:
        region = self.growth.region(where)
        self.oracle.keeps[name, id] = DurableInterest(name, self.script.homes[name], id, region)
        self.network.programs[name].keep(id, where)

    def _cancel(self, name: str, id: str) -> bool:
        if (name, id) not in self.oracle.keeps:
            return False
        self.oracle.remove(name, id)
        self.network.programs[name].cancel(id)
        return True

    def _publish(self, name: str, event: dict[str, Any]) -> str:
        return self.network.programs[name].publish(event).id

    def _away(self, name: str) -> None:
        self.network.programs[name].leave()

    def _back(self, name: str) -> None:
        self.network.programs[name].come()

    def _live(self, name: str, home: str, where: str) -> None:
        """A program that is to move, and has a plain subscription."""
        self.oracle.plain[name, ID] = region = self.growth.region(where)
        program = self.network.add_program(name, home)
        program.come()
        self.oracle.movers[name] = Mover(program, where, region)

    def _move(self, name: str, home: str) -> None:
        mover, there = self.oracle.movers[name], self.network.add_program(f"{name}-there", home)
        self.oracle.plain[there.name, ID] = mover.region
        self.oracle.plain[name, BEHIND] = self.growth.region(CLAUSE_BEHIND)
        there.come()
        mover.move(there)
        self._step_mover(mover)

    def _step_mover(self, mover: Mover) -> None:
        mover.step()
        if mover.is_moving:
            self.network.agenda.at(self.network.now + MOVE_SECONDS, self._step_mover, mover)

    # --- Steps of machines --------------------------------------------------------------------------------------------

    def _kill(self, address: str, share: float) -> bool:
        machine = self.network.machines[address]
        if not machine.is_up:
            return False
        self.oracle.note_crash(self.network.now)
        self.network.kill(machine, share)
        return True

    def _start(self, address: str) -> None:
        self.oracle.note_crash(self.network.now)
        self.network.start(self.network.machines[address])

    def _cut(self, one: str, other: str, late: bool, seconds: float) -> None:
        self.network.cut(one, other, late, seconds)

    def _heal(self, one: str, other: str) -> None:
        self.network.heal(one, other)

    def _fill(self, address: str, seconds: float) -> bool:
        """What a full disk refuses comes when there is room, in order."""
        process = self.network.machines[address].process
        if process is None:
            return False
        process.store.full_until = self.network.now + seconds
        self.oracle.held_up.add(address)
        return True

    def _step_clock(self, address: str, seconds: float) -> None:
        """Nothing gets older by that, and nothing stands still."""
        self.network.machines[address].step_clock(seconds)
        self.oracle.step_clock(address, seconds)
        self._has_steps = True

    def _grow(self, address: str, text: str) -> bool:
        return not self.move.lost and self.growth.grow(self.network.machines[address], text)

    # --- Copies of stores ---------------------------------------------------------------------------------------------

    def _back_up(self, address: str) -> None:
        self.network.back_up(self.network.machines[address])

    def _put_back(self, address: str, manner: str) -> bool:
        machine = self.network.machines[address]
        if not machine.backups:
            return False
        self.network.kill(machine, 1.0)
        since = self.network.put_back(machine, manner)
        lives = {row.id for row in machine.disk.lives.values()}
        is_old = manner in ("restore", "backup") or (machine.disk.noted and machine.disk.noted not in lives)
        self._lose(address, since, is_announced=is_old or is_behind([*self.network.machines.values()], machine))
        self._void(address, lambda keep: keep.promised_at is None or keep.promised_at >= since)
        self._cancel_again(machine)
        self._expect_refusals(machine, has_mark=manner == "restore")
        self.network.start(machine)
        if is_old and self._process(address).driver.history.present.since is None:
            raise Failed(f"{address} does not notice that its store went back to the past")
        return True

    def _expect_refusals(self, machine: Machine, has_mark: bool) -> None:
        """Each neighbour that knows another store of this machine, or a life that it no longer has, has to refuse it,
        unless it carries the mark of a restore. What a neighbour knows is on its disk, else a crash may take it; and
        nothing since then has changed it (an operator had it forgotten a moment ago)."""
        self._forgo_refusals(machine.name)
        if has_mark:
            return
        for name, each in self.network.machines.items():
            rows = [each.disk.neighbours.get(machine.name)]
            if each.process is not None:
                rows.append(each.process.driver.neighbours.get(machine.name))
            if all(is_refused(row, each, machine) for row in rows):
                self._to_refuse[name, machine.name] = None

    def _forgo_refusals(self, name: str) -> None:
        self._to_refuse = {pair: None for pair in self._to_refuse if name not in pair}

    def _lose(self, address: str, since: float, is_announced: bool) -> None:
        now = self.network.now
        self.oracle.losses.append(Loss(address, since, now, is_announced))
        self.oracle.note_crash(now)
        self._has_copies = True

    def _void(self, broker: str, is_void: Callable[[DurableInterest], bool]) -> None:
        """Of some durable subscriptions a broker may know nothing: of what is published before the next rest nothing is
        promised to them."""
        for keep in self.oracle.keeps.values():
            if is_void(keep):
                self.oracle.void(keep, broker)
                self._voided[keep.name] = None

    def _void_all(self, broker: str) -> None:
        """A broker has lost what it knew. Until all its neighbours have come in again it does not know what is asked
        for behind them, and what is asked for meanwhile settles without it: "settled" speaks of the brokers that are
        linked. So nothing is promised before the next rest, not even to a durable subscription that is made now."""
        self._void(broker, lambda keep: True)
        self._unaware[broker] = None

    def _cancel_again(self, machine: Machine) -> None:
        """Programs end what has come back with an old store."""
        for peer in machine.disk.queues:
            name, id = split_durable_name(peer.name)
            program = self.network.programs[name]
            if id not in program.durable:
                program.cancels[id] = None

    def _lose_disk(self, address: str) -> None:
        machine = self.network.machines[address]
        self.network.kill(machine, 1.0)
        self.network.lose_disk(machine)
        self._expect_refusals(machine, has_mark=False)
        self._lose(address, -1.0, is_announced=False)
        self._void_all(address)
        self.network.start(machine)

    def _copy(self, address: str, takes_address: bool) -> bool:
        machine = self.network.machines[address]
        if f"{address}'" in self.network.machines:
            return False
        self._has_copies = True
        self._unaware[address] = None  # what settles at one of both, the other does not know
        self._copied_at[address] = self.network.now
        self.oracle.note_crash(self.network.now)  # the copy starts without what was not on disk yet: that comes again
        self._forgo_refusals(address)
        self.network.start(self.network.add_copy(machine, takes_address))
        return True

    def _decide(self, address: str, keeps_copy: bool) -> bool:
        """Of a store and its copy one goes on."""
        copy = self.network.machines.get(f"{address}'")
        if copy is None:
            return False
        machine = self.network.machines[address]
        self._forgo_refusals(address)
        self._forgo_refusals(copy.address)
        disk = copy.disk
        self.network.remove_machine(copy)
        if keeps_copy:
            self.network.kill(machine, 1.0)
            machine.put_disk(disk)
        self._lose(address, self._copied_at.pop(address), is_announced=False)
        self._void_all(address)
        self._cancel_again(machine)
        self.network.start(machine)
        return True

    def _accept(self, address: str, neighbour: str) -> bool:
        process = self.network.machines[address].process
        if process is None:
            return False
        self._to_refuse.pop((address, neighbour), None)
        process.accept(neighbour)
        return True

    def _forget(self, address: str, neighbour: str) -> bool:
        process = self.network.machines[address].process
        if process is None:
            return False
        self._lose(address, -1.0, is_announced=False)
        self._void_all(address)
        self._to_refuse.pop((address, neighbour), None)
        process.forget(neighbour)
        return True

    # --- A broker that is lost for good -------------------------------------------------------------------------------

    def _destroy(self, address: str, parent: str) -> None:
        self.move.destroy(address, parent, self.oracle)

    def _attach(self, address: str, neighbour: str) -> bool:
        return self.move.attach(address, neighbour, self.oracle)

    def _publish_everywhere(self) -> None:
        for name in self.script.publishers:
            self._publish(name, {"x": 4, "y": 4, "kind": "a", "name": "ann"})

    def _check_announced(self, loss: Loss) -> None:
        """Of what is lost with a store that goes back to the past somebody says from when to when."""
        if not loss.is_announced:
            return
        for machine in self.network.machines.values():
            for gap in machine.disk.gaps.values():
                if machine.name == loss.broker or gap.peer.name == loss.broker:
                    is_covered = gap.since <= EPOCH + loss.since + SLACK and EPOCH + loss.until - SLACK <= gap.until
                    if is_covered or self._has_steps:  # what a clock says that was stepped is compared with nothing
                        return
        raise Failed(f"nobody said that {loss} was lost: {[m.disk.gaps for m in self.network.machines.values()]}")

    # --- At rest ------------------------------------------------------------------------------------------------------

    def _rest(self, *events: dict[str, Any]) -> None:
        network = self.network
        for one, other in self.script.links:
            network.heal(one, other)
        for address in [each for each in network.machines if each.endswith("'")]:
            self._decide(address[:-1], keeps_copy=False)
        for program in network.programs.values():
            program.come()
        began = network.now
        while self._restless():
            self._operate()
            if network.now - began > REST_MAX:
                raise Failed(f"no rest {REST_MAX:g} seconds after the last fault: {self._restless()}")
            network.agenda.run(network.now + POLL)
        self._check_rest()
        for event in events:
            self._publish_calmly(event)

    def _operate(self) -> None:
        """Operators accept whoever is refused, and start what has ended."""
        for machine, name in self._refused:
            if machine.process is not None:
                self._accept(machine.address, name)  # also if, since it was refused, another store came under the name
        self._refused.clear()
        for machine in self.network.machines.values():
            self.network.start(machine)
        self.growth.say_again()
        if self.move.lost:
            self.move.go_on(self.oracle)

    def hung_up(self, machine: Machine, peer: str, reason: str, code: str) -> None:
        if code in ("history", "store"):
            if not self._has_copies:
                raise Failed(f"{machine.address} refuses {peer}, and no store was ever touched: {reason}")
            self._refused[machine, peer] = None
            self._to_refuse.pop((machine.address, peer), None)

    def ended(self, process: NodeProcess) -> None:
        self.oracle.note_crash(self.network.now)

    def _restless(self) -> str:
        """What is still to happen; empty if nothing is."""
        for program in self.network.programs.values():
            why = self._restless_program(program)
            if why:
                return f"{program.name} {why}"
        for machine in self.network.machines.values():
            why = self._restless_machine(machine)
            if why:
                return f"{machine.address}: {why}"
        return ""

    def _restless_program(self, program: Program) -> str:
        if program.end is None or not program.end.is_resumed:
            return "is not connected"
        if program.outbox:
            return f"waits for acknowledgements of {[each.id for each in program.outbox]}"
        if program.cancels:
            return f"waits for the end of {list(program.cancels)}"
        keeps = [each for each in self.oracle.keeps.values() if each.program == program.name]
        for keep in keeps:
            if not keep.has_settled:
                return f"waits for {keep.id} to settle"
        if program.name in self.oracle.movers and self.oracle.movers[program.name].is_moving:
            return "is moving"
        home = program.state.homes[HOME]
        if home.changed_at:
            return f"waits for {list(home.changed_at)} to settle"
        return ""

    def _restless_machine(self, machine: Machine) -> str:
        process = machine.process
        if process is None:
            return "is down"
        if not process.store.is_idle:
            return "writes"
        if grows := self.growth.restless(machine):
            return grows
        broker = process.driver.broker
        if self.move.lost in broker.links:
            return f"{self.move.lost} is not forgotten"
        for name in self.move.neighbours(machine.name):
            link = broker.links.get(name)
            if link is None or not link.is_synced or link.sent_total != link.settled or link.waiting:
                return f"the link to {name} has not settled"
        for queue in process.queues:
            if not queue.stream.is_empty and queue.expires is None:
                return f"{queue.name} has {queue.stream.on_disk.count} events, {len(queue.stream.gaps)} gaps"
        for name, stream in process.driver.streams.items():
            if not stream.is_empty:
                return f"{stream.on_disk.count} events, {len(stream.gaps)} gaps are kept for {name}"
        return ""

    def _check_rest(self) -> None:
        self.growth.check_rest(self.network.machines.values())
        for one, other in self.move.links:
            self._check_link(one, other)
            self._check_link(other, one)
        for machine in self.network.machines.values():
            process = self._process(machine.address)
            process.driver.broker.check_invariants()
            held = sorted(queue.name for queue in process.queues if queue.expires is None)
            wanted = sorted(each.name for each in self.oracle.keeps.values() if each.home == machine.name)
            if held != wanted:
                raise Failed(f"{machine.address} has the durable subscriptions {held}; its clients have {wanted}")
        self.oracle.check_all()
        if self._to_refuse:
            raise Failed(f"admitted without a word, though another past or store was known: {list(self._to_refuse)}")
        self._voided.clear()
        self._unaware.clear()
        for machine in self.network.machines.values():
            if machine.disk.gaps and not self._has_copies:
                raise Failed(f"a false alarm of {machine.address}: {machine.disk.gaps}")
        for keep in self.oracle.keeps.values():
            if not self._is_durable_everywhere(keep):
                raise Failed(f"at rest a broker does not know that the events of {keep.name} are to be kept")
            self._promise(keep)

    def _check_link(self, sender: str, receiver: str) -> None:
        one, other = self._process(sender).driver.broker, self._process(receiver).driver.broker
        for table in (SUBSCRIPTIONS, ADVERTISEMENTS):
            sent, received = one.outbound(table, receiver).forwarded(), other.received_from(table, sender)
            if sent != received:
                raise Failed(f"{sender} sent {receiver} {sent}, which holds {received}")

    def _process(self, address: str) -> NodeProcess:
        process = self.network.machines[address].process
        assert process is not None
        return process

    def _publish_calmly(self, event: dict[str, Any]) -> None:
        """At rest an event comes to whoever wants it, and to nobody else."""
        name = self.script.publishers[0]
        id = self._publish(name, event)
        self.network.agenda.run(self.network.now + 2.0)
        wanted = [each.name for each in self.oracle.keeps.values() if each.region.contains(event)]
        for (reader, own), region in self.oracle.plain.items():
            if (
                region.contains(event)
                and (SUBSCRIPTIONS, own) in self.network.programs[reader].state.homes[HOME].wheres
            ):
                wanted.append(f"{reader}/{own}")
        arrived = self.oracle.arrivals.get(id, {})
        if sorted(arrived) != sorted(wanted) or not self.oracle.publications[id].is_acknowledged:
            raise Failed(f"event {event}, published at rest by {name}, came to {sorted(arrived)}, wanted by {wanted}")

    # --- What is seen of programs -------------------------------------------------------------------------------------

    def published(self, program: Program, event: Publish) -> None:
        for keep in self.oracle.keeps.values():
            is_void = keep.name in self._voided or self._is_past_unaware(keep)
            if keep.has_settled and not is_void and self._is_durable_everywhere(keep):
                self._promise(keep)
        self.oracle.publish(event, program.home, self.network.now, program.has_advertised)
        for mover in self.oracle.movers.values():
            mover.note_published(event)

    def _promise(self, keep: DurableInterest) -> None:
        if keep.promised_at is None:
            keep.promised_at = self.network.now

    def _is_past_unaware(self, keep: DurableInterest) -> bool:
        """Whether events of some publisher come to a durable subscription by a broker that may not know of it."""
        ways = [self.move.way(self.script.homes[name], keep.home) for name in self.script.publishers]
        return any(broker in way for way in ways for broker in self._unaware)

    def _is_durable_everywhere(self, keep: DurableInterest) -> bool:
        """Whether every broker knows that there is something durable on its way to a durable subscription."""
        for machine in self.network.machines.values():
            if machine.name == keep.home:
                continue
            next_hop = self.move.way(machine.name, keep.home)[1]
            link = None if machine.process is None else machine.process.driver.broker.links.get(next_hop)
            if link is None or not link.is_durable:
                return False
        return True

    def acknowledged(self, program: Program, event: Publish) -> None:
        self.oracle.publications[event.id].is_acknowledged = True

    def refused(self, program: Program, refused: Refused) -> None:
        if refused.code not in ("disk_full", *NEW_REFUSED):
            raise Failed(f"event {refused.id} of {program.name} was refused: {refused.reason}")

    def handed_on(self, program: Program, id: str, number: int, event: Publish) -> None:
        keep = self.oracle.keeps.get((program.name, id))
        if keep is not None:
            self.oracle.deliver(keep, number, event)

    def lost(self, program: Program, lost: wire.Lost) -> None:
        keep = self.oracle.keeps.get((program.name, lost.id))
        if keep is not None:
            self.oracle.tell(keep, lost)

    def delivered(self, program: Program, ids: tuple[str, ...], event: Publish) -> None:
        self.oracle.deliver_plainly(program.name, ids, event)

    def stands(self, program: Program, status: wire.DurableStatus) -> None:
        keep = self.oracle.keeps.get((program.name, status.id))
        if keep is not None and status.state == "settled":
            keep.has_settled = True

    # --- What is seen of nodes ----------------------------------------------------------------------------------------

    def took(self, process: NodeProcess, arrived: Publish | wire.Gap) -> None:
        self.oracle.take(process.machine.name, arrived, self.network.now, process.wall())

    def said(self, process: NodeProcess, end: NodeEnd, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, Refused) and message.id in self.oracle.publications:
                self.oracle.publications[message.id].is_refused = True
            elif isinstance(end, ClientEnd) and isinstance(message, Accepted):
                if end.due.get(message.seq, 0) > process.store.committed:
                    raise Failed(
                        f"{process.machine.address} accepted {message.seq} of {end.name} before the disk had it"
                    )
            elif isinstance(end, ClientEnd) and isinstance(message, wire.DurableStatus):
                if message.state != "refused":
                    self._check_durable(process, end.name, message)
            elif isinstance(end, ClientEnd) and isinstance(message, wire.Published):
                self._check_acknowledged(process, end.take_acknowledged(message.count), end.name)
            elif isinstance(end, NeighbourEnd) and isinstance(message, wire.Received):
                self._check_acknowledged(process, end.take_acknowledged(message.number), end.name)

    def _check_durable(self, process: NodeProcess, name: str, status: wire.DurableStatus) -> None:
        """What a program hears about a durable subscription is on disk."""
        peer, disk = PeerKey(DURABLE_QUEUE, durable_name(name, status.id)), process.machine.disk
        record = disk.records.get(SubscriptionKey(peer, overlay_id(process.machine.name, peer.name, status.id)))
        where = record.where if isinstance(record, SubscriptionRecord) and peer in disk.queues else ""
        if where != status.where:
            raise Failed(f"{process.machine.address} said {status} before it was on disk: {record}")

    def _check_acknowledged(self, process: NodeProcess, arrived: list[str | wire.Gap], peer: str) -> None:
        """Nobody is told that an event arrived unless it is on a disk from which it goes on, or has arrived."""
        for each in arrived:
            publication = self.oracle.release(process.machine.name, each, self.network.now)
            if publication is None:
                continue
            event = publication.event.id
            for keep in publication.expected:
                ways = [way(process.machine.name, keep.home) for way in (self.move.way, *self.oracle.former_ways)]
                if publication.home != process.machine.name and any(peer in way for way in ways):
                    continue  # it came from there
                if keep.is_removed or self.oracle.has_come(keep, event) or self.oracle.loss_of(publication, keep):
                    continue
                if not any(self._is_safe(process.machine, publication, way, keep) for way in ways):
                    raise Failed(
                        f"{process.machine.address} acknowledged event {event} to {peer} before it was on disk for "
                        f"{keep.name}"
                    )

    def _is_safe(self, machine: Machine, publication: Publication, way: list[str], keep: DurableInterest) -> bool:
        """Whether an event is on a disk, or its subscriber knows that a limit has cost it, or is going to be told."""
        machines = list(self.network.machines.values())
        return (
            is_on_disk(machines, machine, publication.event.id, way, keep)
            or self.oracle.may_be_told(publication, keep)
            or any(self.oracle.is_in(gap, publication, keep) for gap in gaps_on_disk(machines, way, keep))
        )
