"""What happens in a random run of whole nodes, drawn from a seed before it runs: machines, programs, and steps in time.

As in script.py, any prefix of the steps is a run of its own, and a step whose subject is not there does nothing. The
steps come in scenes: a fault, what makes it matter, and events before, during and after it. At the end of each act
faults end, operators do what they have to, and all is at rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from thatch.sim.node_strangers import draw_strangers
from thatch.sim.script import GROWN, OTHER, Step, clause, event
from thatch.sim.topology import Links, random_tree

CLOCK_STEPS = (-3_600.0, -5.0, 700.0, 8 * 86_400.0)
KEPT_BYTES = (2**30, 2**30, 2**30, 150, 600)
KEPT_SECONDS = (100_000.0, 100_000.0, 100_000.0, 100_000.0, 1.0)  # the first is less than clocks are stepped
COMMIT_SECONDS = (0.001, 0.005, 0.05, 0.3)


@dataclass(frozen=True, slots=True)
class NodeScript:
    seed: int
    links: Links  # the first one dials
    commit_seconds: tuple[float, ...]  # of each broker's disk
    latency: float
    homes: dict[str, str]  # program -> broker
    publishers: tuple[str, ...]
    routing: str
    kept_bytes: int  # of events, for a neighbour or a durable subscription
    kept_seconds: float
    steps: tuple[Step, ...]
    has_cells: bool = False  # brokers have partitions into cells, and another one now and then when they start
    away_seconds: float = 60.0  # that a neighbour is waited for

    def prefix(self, steps: int) -> NodeScript:
        """The first steps, and then the rest that every run ends with."""
        kept = self.steps[:steps]
        end = Step(kept[-1].at + 2.0 if kept else 0.0, "rest", ())
        return replace(self, steps=(*kept, end))


def brokers_of(script: NodeScript) -> list[str]:
    return [f"B{at}" for at in range(len(script.commit_seconds))]


def draw_nodes(seed: int, acts: int = 2, scenes: int = 2) -> NodeScript:
    rng = random.Random(seed * 31 + 7)
    count = rng.choice((2, 2, 3, 3, 4))
    links = [link if rng.random() < 0.5 else (link[1], link[0]) for link in random_tree(count, rng)]
    brokers = [f"B{at}" for at in range(count)]
    publishers = ("p0",) if rng.random() < 0.6 else ("p0", "p1")
    readers = [f"c{at}" for at in range(rng.choice((1, 2, 2)))]
    homes = {name: rng.choice(brokers) for name in (*publishers, *readers)}
    drawer = _Drawer(rng, links, brokers, readers, publishers)
    made = [Step(0.0, "advertise", (name, "TRUE")) for name in publishers]
    for name in readers:
        made += drawer.keep(0.0, name)
    made += drawer.subscribe(0.0)
    made.append(Step(0.0, "rest"))
    now = 0.0
    for _ in range(acts):
        for _ in range(rng.randint(1, scenes)):
            scene = rng.choices(list(drawer.scenes), weights=list(drawer.scenes.values()))[0]
            made += scene(now)
            now += rng.choice((0.2, 1.0, 2.5))
        now = max([now, *(step.at for step in made)]) + 1.0
        made.append(Step(now, "rest", (event(rng),)))
    limits = random.Random(seed * 31 + 13)
    kept_bytes, kept_seconds = limits.choice(KEPT_BYTES), limits.choice(KEPT_SECONDS)
    is_limited = kept_bytes < KEPT_BYTES[0] or kept_seconds < KEPT_SECONDS[0]
    made += _growths(seed, brokers, publishers, now, may_restore=not is_limited)
    # What a limit costs plain subscriptions nobody says.
    moves = [] if is_limited else _moves(random.Random(seed * 31 + 9), brokers, links, publishers, now + 1.0)
    now = max([now, *(step.at for step in moves)])
    made += moves
    lived = [*homes.values(), *(step.args[1] for step in moves if step.kind in ("live", "move"))]
    made += _lost_for_good(random.Random(seed * 31 + 8), links, lived, publishers, now)
    made += _steps_of_clocks(seed, brokers, now)
    made += draw_strangers(seed, links, publishers, now)
    if is_limited:
        made += _flood(limits, brokers, publishers)
    return NodeScript(
        seed, links, tuple(rng.choice(COMMIT_SECONDS) for _ in brokers), rng.choice((0.0005, 0.005, 0.03)), homes,
        publishers, rng.choice(("advertisements", "subscriptions")), kept_bytes, kept_seconds,
        tuple(sorted(made, key=lambda step: step.at)), seed % 2 == 1,
        random.Random(seed * 37 + 5).choice((0.5, 1.0, 2.0, 60.0)),
    )  # fmt: skip


def draw_absence(seed: int, count: int = 6) -> NodeScript:
    """Durable subscribers at a broker and behind it have settled, and it goes. While it is away for longer than anybody
    waits, new publishers beside the gap and two hops from it advertise, and publish so many events each; a broker on
    the way is killed; and the missing one returns."""
    rng = random.Random(seed * 41 + 11)
    brokers = ["B0", "B1", "B2", "B3"][: rng.choice((3, 4, 4))]
    links = [link if rng.random() < 0.5 else (link[1], link[0]) for link in pairwise(brokers)]
    homes = {"p0": "B2", "c0": "B2", "c1": brokers[-1], "q0": "B1", "q1": "B0"}
    drawer = _Drawer(rng, links, brokers, ["c0", "c1"], ("q0", "q1"))
    made = [Step(0.0, "advertise", ("p0", "x >= 6"))]
    made += [step for name in ("c0", "c1") for step in drawer.keep(0.0, name)]
    made.append(Step(0.0, "rest"))
    gap, gone = next(link for link in links if "B1" in link and "B2" in link), 0.2
    back = gone + rng.choice((9.0, 11.0))
    if rng.random() < 0.5:
        made += drawer.down(gone, "B2", back - gone)
    else:
        made += [Step(gone, "cut", (*gap, rng.random() < 0.3, 1.0)), Step(back, "heal", gap)]
    for name in ("q0", "q1"):
        where, lowest = rng.choice((("TRUE", 0), ("y >= 0", 0), ("x >= 4", 4)))
        made.append(Step(gone + rng.choice((0.0, 1.0, 4.0)), "advertise", (name, where)))
        for step in drawer.events(gone + 6.0, back - gone - 5.5, count, (name,)):
            made.append(replace(step, args=(name, step.args[1] | {"x": rng.randint(lowest, 11)})))
    for name in rng.choice((("B1",), ("B1",), ("B0", "B1"), ())):
        made += drawer.down(gone + rng.choice((5.0, 7.0, back - gone)) + rng.random(), name, rng.choice((0.01, 0.5)))
    if rng.random() < 0.3:
        made += drawer.down(back + rng.choice((0.01, 0.05, 0.2)), "B2", 0.1)
    if len(brokers) > 3 and rng.random() < 0.4:  # what is behind the missing one comes later, or has gone before
        made += drawer.down(gone - 0.1, "B3", rng.choice((2.0, back + 3.0)))
    made.append(Step(max(step.at for step in made) + 1.0, "rest", (event(rng) | {"x": 11},)))
    return NodeScript(
        seed, links, tuple(rng.choice(COMMIT_SECONDS) for _ in brokers), rng.choice((0.0005, 0.005, 0.03)), homes,
        ("q0", "q1", "p0"), rng.choice(("advertisements", "advertisements", "advertisements", "subscriptions")),
        KEPT_BYTES[0], KEPT_SECONDS[0],
        tuple(sorted(made, key=lambda step: step.at)), seed % 2 == 1, rng.choice((0.5, 1.0, 2.0)),
    )  # fmt: skip


def _moves(rng: random.Random, brokers: list[str], links: Links, publishers: tuple[str, ...], now: float) -> list[Step]:
    """A program with a plain subscription moves while many events come, slow links have a backlog, links are cut and
    disks are full. Nothing crashes, most often: what a crash costs plain subscriptions nobody knows."""
    if rng.random() < 0.6:
        return []
    here, there = rng.sample(brokers, 2)
    steps = [Step(now, "live", ("mover", here, "TRUE" if rng.random() < 0.5 else clause(rng, 2.0)))]
    at = now + 2.0
    seconds = rng.choice((0.1, 0.6, 1.5))
    times = sorted(at + rng.random() * seconds for _ in range(rng.choice((20, 60, 120))))
    steps += [Step(time, "publish", (rng.choice(publishers), event(rng))) for time in times]
    at += rng.random() * 0.3
    steps.append(Step(at, "move", ("mover", there)))
    if rng.random() < 0.6:
        link = rng.choice(links)
        steps += [
            Step(at + rng.choice((-0.5, 0.0, 0.1)), "cut", (*link, rng.random() < 0.2, 0.3)),
            Step(at + 0.7, "heal", link),
        ]
    if rng.random() < 0.3:
        steps.append(Step(at - 0.2, "fill", (rng.choice(brokers), 0.8)))
    if rng.random() < 0.1:
        broker = rng.choice(brokers)
        steps += [Step(at + 0.1, "kill", (broker, 1.0)), Step(at + 0.3, "start", (broker,))]
    return [*steps, Step(at + 3.0, "rest", (event(rng),))]


def _growths(seed: int, brokers: list[str], publishers: tuple[str, ...], end: float, may_restore: bool) -> list[Step]:
    """Operators grow the space, most often two at once and differently, amid the other scenes; what is new is used
    soon. Drawn apart: the other steps stay as they are."""
    rng = random.Random(f"growths {seed}")
    if rng.random() < 0.6:
        return []
    at = rng.random() * end * 0.8
    steps = [Step(at, "grow", (rng.choice(brokers), GROWN))]
    if rng.random() < 0.7:
        steps.append(Step(at + rng.choice((0.0, 0.02, 0.3)), "grow", (rng.choice(brokers), OTHER)))
    if rng.random() < 0.6 and may_restore:  # a backup from before the growth comes back
        broker = rng.choice(brokers)
        back_up, put_back = max(0.0, at - rng.random()), at + rng.choice((0.05, 0.5, 2.0))
        steps += [Step(back_up, "back_up", (broker,)), Step(put_back, "put_back", (broker, "restore"))]
    for _ in range(8):
        new = rng.choice(({}, {"kind": "e"}, {"other": rng.random() < 0.5}))
        step = Step(at + rng.random() * 3.0, "publish", (rng.choice(publishers), event(rng, grown=True) | new))
        steps.append(step)
    return steps


def _lost_for_good(
    rng: random.Random, links: Links, homes: list[str], publishers: tuple[str, ...], now: float
) -> list[Step]:
    """An inner broker, where no program lives, goes with its disk. Its neighbours are attached to one of them, one
    after the other, while events are published and brokers are killed."""
    around: dict[str, list[str]] = {}
    for one, other in links:
        around.setdefault(one, []).append(other)
        around.setdefault(other, []).append(one)
    inner = [name for name, others in around.items() if len(others) > 1 and name not in homes]
    if not inner or rng.random() < 0.3:
        return []
    lost = rng.choice(inner)
    parent, *children = rng.sample(around[lost], len(around[lost]))
    now += 3.0
    steps = [Step(now + 0.1, "destroy", (lost, parent))]
    at = now + 0.2
    for name in children:
        at += rng.choice((0.1, 0.5, 2.0))
        steps.append(Step(at, "attach", (parent, name)))
        steps.append(Step(at + rng.choice((-0.05, 0.0, 0.2, 1.0)), "attach", (name, parent)))
        if rng.random() < 0.5:
            broker, moment = rng.choice((parent, name)), at + rng.choice((0.0, 0.003, 0.02, 0.3))
            steps += [
                Step(moment, "kill", (broker, rng.choice((0.0, 0.5, 1.0)))),
                Step(moment + 0.2, "start", (broker,)),
            ]
        if rng.random() < 0.2:
            steps.append(Step(at, "fill", (rng.choice((parent, name)), 0.4)))
    times = sorted(now + rng.random() * (at + 1.0 - now) for _ in range(10))
    steps += [Step(time, "publish", (rng.choice(publishers), event(rng))) for time in times]
    return [*steps, Step(at + 3.0, "rest", (event(rng),))]


def _steps_of_clocks(seed: int, brokers: list[str], until: float) -> list[Step]:
    """Clocks of machines that are stepped, drawn apart from all else."""
    rng = random.Random(seed * 31 + 11)
    count = rng.choice((0, 0, 1, 3))
    return [
        Step(rng.random() * until, "step_clock", (rng.choice(brokers), rng.choice(CLOCK_STEPS))) for _ in range(count)
    ]


def _flood(rng: random.Random, brokers: list[str], publishers: tuple[str, ...]) -> list[Step]:
    """More than is kept comes for a broker that is down, in the midst of all else."""
    broker, at = rng.choice(brokers), 1.0 + rng.random()
    times = sorted(at + rng.random() for _ in range(8))
    down = [Step(at, "kill", (broker, 1.0)), Step(at + 2.5, "start", (broker,))]
    return [*down, *(Step(each, "publish", (rng.choice(publishers), event(rng))) for each in times)]


class _Drawer:
    def __init__(
        self, rng: random.Random, links: Links, brokers: list[str], readers: list[str], publishers: tuple[str, ...]
    ) -> None:
        self.rng, self.links, self.brokers, self.readers, self.publishers = rng, links, brokers, readers, publishers
        self.kept: list[tuple[str, str]] = []  # durable subscriptions: program, id
        self.made = 0
        self.scenes: dict[Callable[[float], list[Step]], int] = {
            self._kill: 3, self._kill_two: 2, self._kill_while_away: 3, self._cut: 3, self._full: 1, self._away: 2,
            self._cancel: 1, self._new: 2, self._restore: 4, self._lose: 1, self._copy: 2, self._accept: 1,
            self._forget: 1, self._full_on_the_way: 1,
        }  # fmt: skip

    # --- Parts of scenes ----------------------------------------------------------------------------------------------

    def events(self, now: float, seconds: float, count: int, publishers: Sequence[str] = ()) -> list[Step]:
        times = sorted(now + self.rng.random() * seconds for _ in range(count))
        return [Step(at, "publish", (self.rng.choice(publishers or self.publishers), event(self.rng))) for at in times]

    def wide(self) -> str:
        return "TRUE" if self.rng.random() < 0.5 else clause(self.rng, 2.0)

    def keep(self, now: float, name: str) -> list[Step]:
        self.made += 1
        id = f"k{self.made}"
        self.kept.append((name, id))
        return [Step(now, "keep", (name, id, self.wide()))]

    def subscribe(self, now: float) -> list[Step]:
        self.made += 1
        return [Step(now, "subscribe", (self.rng.choice(self.readers), f"s{self.made}", clause(self.rng)))]

    def down(self, at: float, broker: str, seconds: float) -> list[Step]:
        """Killed, and started again."""
        share = self.rng.choice((0.0, 0.5, 1.0))  # a power cut, or a process that ends
        return [Step(at, "kill", (broker, share)), Step(at + seconds, "start", (broker,))]

    def _moment(self) -> float:
        """How long after something is said."""
        return self.rng.choice((0.0, 0.003, 0.02, 0.1, 0.6))

    # --- Scenes -------------------------------------------------------------------------------------------------------

    def _kill(self, now: float) -> list[Step]:
        broker = self.rng.choice(self.brokers)
        down = self.down(now + self._moment(), broker, self.rng.choice((0.01, 0.5)))
        return [*self.events(now, 0.1, 3), *down, *self.events(now, 1.0, 3)]

    def _kill_two(self, now: float) -> list[Step]:
        """Neighbours, at once."""
        at, seconds = now + self._moment(), self.rng.choice((0.01, 0.5))
        down = [step for broker in self.rng.choice(self.links) for step in self.down(at, broker, seconds)]
        return [*self.events(now, 0.05, 4), *down]

    def _kill_while_away(self, now: float) -> list[Step]:
        """A broker goes while it keeps events for a neighbour that is away."""
        one, other = self.rng.sample(list(self.rng.choice(self.links)), 2)
        first = self.down(now, one, self.rng.choice((1.5, 3.0)))
        second = self.down(now + 0.8 + self._moment(), other, self.rng.choice((0.01, 0.3)))
        return [*first, *self.events(now + 0.1, 0.7, 4), *second]

    def _cut(self, now: float) -> list[Step]:
        link = self.rng.choice(self.links)
        late, seconds = self.rng.random() < 0.4, self.rng.choice((0.05, 0.7))
        steps = [Step(now + 0.05, "cut", (*link, late, seconds * 2)), Step(now + 0.05 + seconds, "heal", link)]
        return [*self.events(now, 0.2, 4), *steps, *self.events(now + seconds, 0.3, 2)]

    def _full(self, now: float) -> list[Step]:
        broker = self.rng.choice(self.brokers)
        return [Step(now, "fill", (broker, self.rng.choice((0.3, 2.0)))), *self.events(now, 0.8, 3)]

    def _full_on_the_way(self, now: float) -> list[Step]:
        """While many events come, and maybe links are cut: they stay in order."""
        steps = [Step(now + 0.05, "fill", (self.rng.choice(self.brokers), self.rng.choice((0.3, 1.2))))]
        if self.rng.random() < 0.3:
            steps += self._cut_off(now + self.rng.random(), self.rng.choice(self.links), 0.3)
        return [*steps, *self.events(now, 1.8, 12)]

    def _away(self, now: float) -> list[Step]:
        """A reader is away, maybe while its broker restarts."""
        name = self.rng.choice(self.readers)
        steps = [Step(now, "away", (name,)), Step(now + self.rng.choice((0.5, 2.0)), "back", (name,))]
        if self.rng.random() < 0.5:
            steps += self.down(now + 0.3, self.rng.choice(self.brokers), 0.1)
        return [*steps, *self.events(now, 0.6, 3)]

    def _cancel(self, now: float) -> list[Step]:
        if not self.kept:
            return []
        name, id = self.kept.pop(self.rng.randrange(len(self.kept)))
        return [*self.events(now, 0.05, 2), Step(now + 0.02, "cancel", (name, id)), *self._restart_near(now)]

    def _new(self, now: float) -> list[Step]:
        steps = self.keep(now, self.rng.choice(self.readers))
        return [*steps, *self._restart_near(now), *self.events(now, 1.0, 3)]

    def _restore(self, now: float) -> list[Step]:
        """A backup is put back, maybe after restarts, and maybe while neighbours or readers are away."""
        broker = self.rng.choice(self.brokers)
        steps = [*self.events(now, 0.3, 2), Step(now + 0.1, "back_up", (broker,)), *self.events(now + 0.1, 0.5, 3)]
        if self.rng.random() < 0.3:
            steps += self.keep(now + 0.2, self.rng.choice(self.readers))
        at = now + 0.8
        for _ in range(self.rng.choice((0, 1, 2))):
            steps += self.down(at, broker, 0.1)
            at += 0.4
        links = [link for link in self.links if broker in link]
        if self.rng.random() < 0.5:
            steps += self._cut_off(at - 0.2, self.rng.choice(links), 1.5)
        if self.rng.random() < 0.3:
            name = self.rng.choice(self.readers)
            steps += [Step(at - 0.3, "away", (name,)), Step(at + 1.0, "back", (name,))]
        manner = self.rng.choice(("restore", "restore", "restore", "backup", "file", "folder"))
        steps += [Step(at, "put_back", (broker, manner)), *self.events(at, 1.2, 5)]
        if self.rng.random() < 0.3:
            steps += self.down(at + self._moment() + 0.1, self.rng.choice(self.brokers), 0.1)
        return steps

    def _cut_off(self, at: float, link: tuple[str, str], seconds: float) -> list[Step]:
        return [Step(at, "cut", (*link, self.rng.random() < 0.2, 0.5)), Step(at + seconds, "heal", link)]

    def _lose(self, now: float) -> list[Step]:
        return [*self.events(now, 0.4, 3), Step(now + 0.3, "lose_disk", (self.rng.choice(self.brokers),))]

    def _copy(self, now: float) -> list[Step]:
        """A store is started twice, the second time while a link of the first is cut."""
        broker, takes_address = self.rng.choice(self.brokers), self.rng.random() < 0.6
        steps = [*self.events(now, 0.2, 2), Step(now + 0.3, "copy", (broker, takes_address))]
        for link in self.links:
            if broker in link and self.rng.random() < 0.7:
                steps += self._cut_off(now + 0.2, link, 1.0)
        if self.rng.random() < 0.4:
            steps += self.down(now + 0.8, broker, 0.3)
        steps += self.events(now + 0.3, 1.5, 4)
        return [*steps, Step(now + 2.5, "decide", (broker, self.rng.random() < 0.5))]

    def _accept(self, now: float) -> list[Step]:
        """An operator accepts a neighbour that nobody refuses."""
        one, other = self.rng.sample(list(self.rng.choice(self.links)), 2)
        return [*self.events(now, 0.3, 3), Step(now + 0.1, "accept", (one, other)), *self._restart_near(now)]

    def _forget(self, now: float) -> list[Step]:
        """An operator forgets a neighbour, most often one that is away."""
        one, other = self.rng.sample(list(self.rng.choice(self.links)), 2)
        away = self.down(now, other, 1.0) if self.rng.random() < 0.7 else []
        return [*away, *self.events(now, 0.4, 2), Step(now + 0.5, "forget", (one, other)), *self._restart_near(now)]

    def _restart_near(self, now: float) -> Iterable[Step]:
        if self.rng.random() < 0.5:
            return ()
        return self.down(now + self._moment(), self.rng.choice(self.brokers), 0.2)
