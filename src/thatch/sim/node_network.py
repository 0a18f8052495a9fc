"""Whole nodes and client programs in simulated time: machines, disks, cuts, strangers.

    program ~~pipe~~ process ~~pipe~~ process          a process is killed and started again; what is on the disk of its
                     [ disk ]         [ disk ]         machine stays, unless it is lost or put back to an old copy

Everything happens at a time and in an order that the seed and the calls determine: the same again gives the same trace.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from typing import Any

from thatch.broker import Settings
from thatch.broker.pages import CHARACTERS_MAX
from thatch.protocol import wire
from thatch.protocol.messages import Message, Publish, next_session
from thatch.sim.agenda import Agenda
from thatch.sim.agreement import with_cells_of_period
from thatch.sim.network import Clauses
from thatch.sim.node_clients import Program, ProgramObserver
from thatch.sim.node_pipe import Pipe
from thatch.sim.node_process import EPOCH, KEPT_SECONDS, ClientEnd, Machine, NeighbourEnd, NodeEnd, NodeProcess
from thatch.sim.node_store import Disk
from thatch.sim.node_strangers import Strangers

CELLS_SECONDS = 2.0  # in which brokers that start get one partition


class NodeObserver(ProgramObserver):
    """Hears what happens. This one does nothing."""

    def said(self, process: NodeProcess, end: NodeEnd, messages: list[Message]) -> None:
        """A node has written a frame."""

    def took(self, process: NodeProcess, arrived: Publish | wire.Gap) -> None:
        """An event has come to a node, or what tells that a limit has cost some."""

    def ended(self, process: NodeProcess) -> None:
        """A process ends by itself, because a neighbour refuses its past."""

    def hung_up(self, machine: Machine, peer: str, reason: str, code: str) -> None:
        """A node has hung up on somebody."""


class NodeNetwork:
    def __init__(
        self,
        clauses: Clauses,
        settings: Settings,
        seed: int,
        latency: float,
        observer: NodeObserver,
    ) -> None:
        self.agenda, self.rng, self.clauses = Agenda(), random.Random(seed), clauses
        self._settings, self._seed = settings, seed
        self.page_characters = random.Random(f"pages {seed}").choice((1, CHARACTERS_MAX))
        self.latency, self.observer, self.away_seconds = latency, observer, 60.0
        self.machines: dict[str, Machine] = {}  # by address
        self.programs: dict[str, Program] = {}
        self.addresses: dict[str, str] = {}  # by the name of a broker: where it is looked for
        self.blocked: dict[frozenset[str], None] = {}  # addresses that cannot reach one another
        self.session = 0
        self.kept_bytes, self.kept_seconds = 2**30, KEPT_SECONDS
        self._pipes: list[tuple[Pipe, str, str, tuple[Any, Any]]] = []
        self._trace = hashlib.sha256()
        self._strangers = Strangers(self.agenda, random.Random(f"strangers {seed}"))

    @property
    def now(self) -> float:
        return self.agenda.now

    @property
    def trace(self) -> str:
        """A hash of every frame that a node has written, where and when."""
        return self._trace.hexdigest()

    # --- Building -----------------------------------------------------------------------------------------------------

    def add_machine(
        self, name: str, dials: Iterable[str], accepts: Iterable[str], commit_seconds: float, address: str = ""
    ) -> Machine:
        """It is looked for at its address, if that is its name."""
        address = address or name
        disk = Disk(self.draw_identity())
        machine = self.machines[address] = Machine(name, disk, tuple(dials), tuple(accepts), commit_seconds, address)
        self.addresses.setdefault(name, address)
        return machine

    def add_program(self, name: str, home: str) -> Program:
        program = self.programs[name] = Program(name, home, self, self.observer)
        return program

    def draw_identity(self) -> str:
        return f"{self.rng.getrandbits(128):032x}"

    # --- Faults -------------------------------------------------------------------------------------------------------

    def start(self, machine: Machine) -> None:
        if machine.process is None:
            machine.process = NodeProcess(machine, self)
            machine.process.start()

    def settings_of(self, machine: Machine) -> Settings:
        """Of a broker that starts now: operators change the partition into cells every few seconds."""
        return with_cells_of_period(self._settings, self._seed, int(self.now // CELLS_SECONDS))

    def kill(self, machine: Machine, share: float) -> None:
        """`share`: how likely a commit that is under way still reaches the disk."""
        process, machine.process = machine.process, None
        if process is not None:
            process.end(share)

    def ended(self, process: NodeProcess) -> None:
        if process.machine.process is process:
            self.observer.ended(process)
            self.kill(process.machine, 1.0)

    def cut(self, one: str, other: str, late: bool, seconds: float) -> None:
        """Between two addresses nothing passes, until it is healed; one side may notice `late`."""
        self.blocked[frozenset((one, other))] = None
        for pipe, *ends, pair in self._pipes:
            if pipe.is_open and {*ends} == {one, other}:
                pipe.cut(pair[self.rng.randrange(2)] if late else None, seconds)
        self._pipes = [each for each in self._pipes if each[0].is_open]

    def heal(self, one: str, other: str) -> None:
        self.blocked.pop(frozenset((one, other)), None)

    # --- Copies of stores ---------------------------------------------------------------------------------------------

    def back_up(self, machine: Machine) -> None:
        """A consistent copy of what is on disk, which says that it is one."""
        copy = machine.disk.copied()
        copy.about["backup"] = repr(EPOCH + self.now)
        machine.backups.append((self.now, copy))

    def put_back(self, machine: Machine, manner: str) -> float:
        """The last backup takes the place of the store of a machine that is down: by the command for it ("restore"), by
        hand ("backup"), or a copy without its mark, as a file over the store ("file") or with all that lay around it
        then ("folder"). When the backup was made."""
        self._strangers.forget()
        at, copy = machine.backups[-1]
        copy = copy.copied()
        if manner == "restore":
            copy.about["restored"] = self.draw_identity()
        elif manner != "backup":
            del copy.about["backup"]
        if manner != "folder":
            copy.note(machine.disk.noted)
        machine.put_disk(copy)
        return at

    def lose_disk(self, machine: Machine) -> None:
        self._strangers.forget()
        machine.put_disk(Disk(self.draw_identity()))

    def add_copy(self, machine: Machine, takes_address: bool) -> Machine:
        """A second machine with a copy of the disk, and all that lies around it, under the same name."""
        self._strangers.forget()
        address = f"{machine.address}'"
        copy = self.add_machine(machine.name, machine.dials, machine.accepts, machine.commit_seconds, address)
        copy.put_disk(machine.disk.copied())
        if takes_address:
            self.addresses[machine.name] = address
        return copy

    def remove_machine(self, machine: Machine) -> None:
        self._strangers.forget()
        self.kill(machine, 1.0)
        del self.machines[machine.address]
        if self.addresses.get(machine.name) == machine.address:
            del self.addresses[machine.name]
            if machine.name in self.machines:
                self.addresses[machine.name] = machine.name

    # --- Connections --------------------------------------------------------------------------------------------------

    def dial(self, machine: Machine, name: str) -> None:
        target = self.machines[self.addresses.get(name, name)] if name in self.addresses else None
        if target is None or target.process is None or machine.process is None:
            return
        if frozenset((machine.address, target.address)) in self.blocked:
            return
        pipe = Pipe(self.agenda, self.latency)
        here, there = NeighbourEnd(machine.process, pipe, name), NeighbourEnd(target.process, pipe)
        pipe.join(here, there)
        self._pipes.append((pipe, machine.address, target.address, (here, there)))

    def connect(self, program: Program) -> Pipe | None:
        target = self.machines[self.addresses[program.home]]
        if target.process is None:
            return None
        pipe = Pipe(self.agenda, self.latency)
        here, there = program.joined(pipe), ClientEnd(target.process, pipe)
        pipe.join(here, there)
        self.session = next_session(self.session, EPOCH + self.now)
        here.greet(self.session)
        return pipe

    def said(self, process: NodeProcess, end: NodeEnd, frame: bytes) -> None:
        self._strangers.note(process, end, frame)
        self._trace.update(f"{self.now!r} {process.machine.address} {end.name} ".encode() + frame)
        self.observer.said(process, end, end.frames_out.decode(frame))

    def took(self, process: NodeProcess, arrived: Publish | wire.Gap) -> None:
        self.observer.took(process, arrived)

    def hung_up(self, process: NodeProcess, end: NodeEnd, reason: str, code: str) -> None:
        if not self._strangers.has(end):
            self.observer.hung_up(process.machine, end.name or end.claimed, reason, code)

    def strange(self, address: str, manner: str, neighbour: str, seconds: float) -> bool:
        """A peer that is not who it says (node_strangers.py) comes to a broker."""
        process = self.machines[address].process if address in self.machines else None
        return process is not None and self._strangers.come(process, manner, neighbour, seconds, self.latency)
