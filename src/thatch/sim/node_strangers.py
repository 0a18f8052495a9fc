"""Peers that are not who they say, in simulated time: wrong and stolen names, sessions that are replayed, and numbers
that cannot be. What they say is made up when they come; nothing that they do may cost anybody anything."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from thatch.delivery.history import ACCEPTED, KNOWN
from thatch.protocol import wire
from thatch.protocol.codec import encode
from thatch.protocol.messages import SESSION_MAX, Digest, Flushed, Hello, Message, Publish, Settled, Subscribe, Synced
from thatch.sim.agenda import Agenda
from thatch.sim.node_pipe import Pipe
from thatch.sim.node_process import ClientEnd, NeighbourEnd, NodeEnd, NodeProcess
from thatch.sim.oracle import Failed
from thatch.sim.script import Step, event
from thatch.sim.topology import Links

SESSIONS_MAX, FRAMES_MAX = 3, 60  # of a neighbour, and of a session, to be replayed
MOST, STRANGER = 2**63 - 1, "stranger"
MANNERS = ("unknown", "stolen", "stolen_by_client", "replayed", "extreme")


def draw_strangers(seed: int, links: Links, publishers: Sequence[str], until: float) -> list[Step]:
    """When they come, drawn apart from all else: to which broker, how, as which neighbour, for how long; often while
    that neighbour is down, and events are published that it is to get later."""
    rng = random.Random(seed * 31 + 17)
    steps = []
    for _ in range(rng.choice((0, 1, 2, 4))):
        broker, neighbour = rng.sample(list(rng.choice(links)), 2)
        at, seconds = rng.random() * until, rng.choice((0.0, 0.1, 0.6))
        steps.append(Step(at, "strange", (broker, rng.choice(MANNERS), neighbour, seconds)))
        if rng.random() < 0.6:
            steps += [Step(at - 0.05, "kill", (neighbour, 1.0)), Step(at + 1.2, "start", (neighbour,))]
        times = sorted(at + rng.random() for _ in range(3))
        steps += [Step(time, "publish", (rng.choice(publishers), event(rng))) for time in times]
    return [step for step in steps if 0.0 < step.at < until]


class StrangerEnd:
    """Says what it came to say, and hears nothing."""

    def arrived(self, frame: bytes) -> None: ...
    def ended(self) -> None: ...


class Strangers:
    def __init__(self, agenda: Agenda, rng: random.Random) -> None:
        self._agenda, self._rng = agenda, rng
        self._pipes: dict[Pipe, None] = {}
        self._sessions: dict[tuple[str, str], dict[NodeEnd, list[bytes]]] = {}  # the last ones, by sender and receiver

    def note(self, process: NodeProcess, end: NodeEnd, frame: bytes) -> None:
        """A node has written a frame, which may be replayed."""
        if not isinstance(end, NeighbourEnd) or self.has(end) or not end.name:
            return
        sessions = self._sessions.setdefault((process.machine.name, end.name), {})
        frames = sessions.setdefault(end, [])
        if len(frames) < FRAMES_MAX:
            frames.append(frame)
        if len(sessions) > SESSIONS_MAX:
            del sessions[next(iter(sessions))]

    def forget(self) -> None:
        """Stores are touched: what was said is of another history, and a number of it may mean another event now."""
        self._sessions.clear()

    def has(self, end: NodeEnd) -> bool:
        return end.pipe in self._pipes

    def come(self, process: NodeProcess, manner: str, neighbour: str, seconds: float, latency: float) -> bool:
        """One comes to a node. Whether it had something to say."""
        says: dict[str, Callable[[NodeProcess, str], list[bytes]]] = {
            "unknown": self._unknown,
            "stolen": self._stolen,
            "stolen_by_client": self._stolen_by_client,
            "replayed": self._replayed,
            "extreme": self._extreme,
        }
        frames = says[manner](process, neighbour)
        if not frames:
            return False
        pipe, here = Pipe(self._agenda, latency), StrangerEnd()
        pipe.join(here, (ClientEnd if manner == "stolen_by_client" else NeighbourEnd)(process, pipe))
        self._pipes[pipe] = None
        for each in frames:
            pipe.send(here, each)
        self._agenda.at(self._agenda.now + 2 * latency + seconds, self._leave, process, pipe, here)
        return True

    def _leave(self, process: NodeProcess, pipe: Pipe, here: StrangerEnd) -> None:
        driver = process.driver
        if not process.is_over:
            if any(STRANGER in each for each in (driver.broker.links, driver.neighbours, driver.streams)):
                raise Failed(f"a stranger has left something behind at {process.machine.address}")
            if any(row.store == STRANGER for row in driver.neighbours.values()):
                raise Failed(f"a stolen name was believed at {process.machine.address}")
        pipe.hang_up(here)

    # --- What they say ------------------------------------------------------------------------------------------------

    def _hello(self, process: NodeProcess, name: str, is_client: bool = False) -> Hello:
        session = self._rng.choice((1, SESSION_MAX))
        return Hello(name, session, process.around.clauses.space.to_json(), is_client, members=(name,))

    def _unknown(self, process: NodeProcess, neighbour: str) -> list[bytes]:
        return [_framed(self._hello(process, STRANGER), wire.Resume(STRANGER, "", 0))]

    def _stolen(self, process: NodeProcess, neighbour: str) -> list[bytes]:
        """Under the name of a neighbour that was met, from another store."""
        row = process.driver.neighbours.get(neighbour)
        if row is None or not row.store or row.state not in (KNOWN, ACCEPTED):
            return []  # nobody could tell
        return [
            _framed(
                self._hello(process, neighbour),
                wire.Resume(STRANGER, "", 0, {1: self._rng.choice((STRANGER, row.life))}),
            )
        ]

    def _stolen_by_client(self, process: NodeProcess, neighbour: str) -> list[bytes]:
        return [_framed(self._hello(process, neighbour, is_client=True), wire.DurableCancel("k1"))]

    def _replayed(self, process: NodeProcess, neighbour: str) -> list[bytes]:
        sessions = list(self._sessions.get((neighbour, process.machine.name), {}).values())
        return self._rng.choice(sessions)[: self._rng.choice((1, 4, FRAMES_MAX))] if sessions else []

    def _extreme(self, process: NodeProcess, neighbour: str) -> list[bytes]:
        """Under the name of a neighbour, what nobody can have meant: after `Hello`, or in `Resume`."""
        row = process.driver.neighbours.get(neighbour)
        if row is None or not row.store or row.state not in (KNOWN, ACCEPTED):
            return []  # nobody could tell
        made_up = Publish("p0:extreme", {})
        said: list[Message] = [
            wire.Received(MOST, MOST), wire.Forward(MOST, made_up), Digest(MOST, MOST, (), ()), Settled(MOST),
            Flushed(MOST), Synced(MOST, MOST), Subscribe(MOST, "~", "TRUE", 1e300),
            wire.Resume(
                STRANGER, "", MOST, {1: row.life, 2**23 - 1: STRANGER}, (), {row.knows: MOST}, row.knows,
                {row.life: MOST, STRANGER: MOST}, STRANGER, 0.0, 1e11,
            ),
        ]  # fmt: skip
        return [_framed(self._hello(process, neighbour), self._rng.choice(said))]


def _framed(*messages: Message) -> bytes:
    return wire.frame([encode(each) for each in messages])
