"""What happens in a random run, drawn from a seed before it runs: brokers, clients, and a list of steps in time.

Because nothing is drawn while it runs, any prefix of the steps is a run of its own: a failure is narrowed down to the
shortest prefix that still fails. A step whose subject is not there (any longer) does nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from thatch.broker.pages import CHARACTERS_MAX
from thatch.region.region import Region
from thatch.sim.topology import Links, path, random_tree
from thatch.space.space import Space

SPACE = "x int not null 0..11, y int not null 0..11, kind enum('a','b','c'), name string"
GROWN = "x int not null 0..11, y int not null 0..11, kind enum('a','b','c','d'), name string, more int 0..9"
OTHER = "x int not null 0..11, y int not null 0..11, kind enum('a','b','c','e'), name string, other bool"
ALL = GROWN.replace("'d'", "'d','e'") + ", other bool"
NAMES = ("ann", "ben", "bob", "cat")


@dataclass(frozen=True, slots=True)
class Step:
    at: float
    kind: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Script:
    seed: int
    links: Links
    latencies: tuple[float, ...]
    bandwidth: float | None  # bytes a second: messages that are sent together then arrive one after the other
    homes: dict[str, str]  # client -> broker
    publishers: tuple[str, ...]
    routing: str
    echo: float
    disk_seconds: float
    through_codec: bool
    events_first: bool
    steps: tuple[Step, ...]
    page_characters: int = CHARACTERS_MAX  # of what a neighbour is sent in one message when they compare what it holds

    def prefix(self, steps: int) -> Script:
        """The first steps, and then the rest that every run ends with."""
        kept = self.steps[:steps]
        end = Step(kept[-1].at + 5.0 if kept else 0.0, "rest", ())
        return replace(self, steps=(*kept, end))


def clause(rng: random.Random, width: float = 1.0) -> str:
    """Boxes that often nest and join, now and then with sets, NULLs, a union or a ball."""
    if rng.random() < 0.08:
        return rng.choice(
            ("kind <> 'a'", "kind IN ('b', 'c')", "kind IN ('b', 'c') OR kind IS NULL", "x < 6", "x >= 6")
        )
    parts = []
    for axis in ("x", "y"):
        if rng.random() < 0.8:
            low = rng.randrange(12)
            high = min(11, low + int(rng.choice((0, 2, 5, 11)) * width))
            parts.append(f"{axis} BETWEEN {low} AND {high}")
    roll = rng.random()
    if roll < 0.25:
        some = ("kind IN ('b', 'c')", "kind IN ('a', 'b')", "kind <> 'a'", "kind IS NULL", "kind IS NOT NULL")
        parts.append(rng.choice(some))
    elif roll < 0.35:
        parts.append(rng.choice(("name LIKE 'b%'", "name = 'ann'", "name < 'bob'", "name IS NULL")))
    elif roll < 0.4:
        parts.append(f"within({rng.choice((1, 2.5, 4))}, x, {rng.randrange(12)}, y, {rng.randrange(12)})")
    where = " AND ".join(parts) or "TRUE"
    if rng.random() < 0.1:
        where = f"({where}) OR x = {rng.randrange(12)}"
    return where


def event(rng: random.Random, grown: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"x": rng.randrange(12), "y": rng.randrange(12)}
    if rng.random() < 0.7:
        made["kind"] = rng.choice("abcd" if grown else "abc")
    if rng.random() < 0.5:
        made["name"] = rng.choice((*NAMES, "bo", ""))
    if grown and rng.random() < 0.5:
        made["more"] = rng.randrange(10)
    return made


def draw(seed: int, steps: int = 16, epochs: int = 2) -> Script:
    rng = random.Random(seed)
    links = random_tree(rng.randint(3, rng.choice((6, 6, 9, 15))), rng)
    brokers = [f"B{at}" for at in range(len(links) + 1)]
    clients = [f"c{at}" for at in range(rng.randint(3, 6))]
    publishers = tuple(f"p{at}" for at in range(rng.randint(1, 3)))
    homes = {name: rng.choice(brokers) for name in (*clients, *publishers)}
    routing = rng.choice(("advertisements", "advertisements", "advertisements", "subscriptions", "events"))
    drawer = _Drawer(rng, links, brokers, clients, publishers)
    made: list[Step] = []
    now, calm = 0.0, [0.5]
    for name in publishers:
        made.append(Step(now, "advertise", (name, "a0", "TRUE" if rng.random() < 0.4 else clause(rng, 2.0))))
    for _ in range(8):
        made += drawer.subscribe(now)
    made.append(Step(now, "rest"))
    for _ in range(epochs):
        for _ in range(steps // epochs):
            now += rng.choice((0.0, 0.001, 0.01, 0.2))
            made += drawer.step(now)
        now += 5.0
        made.append(Step(now, "rest", tuple(event(rng, drawer.grown) for _ in range(6))))
        calm.append(now + 0.5)
        now += 5.0
    made += _strangers(seed, brokers, routing, now)
    made += _growths(seed, drawer, now)
    pages = random.Random(seed * 6007 + 3)  # of its own: the rest is drawn as without it
    page_characters = pages.choice((CHARACTERS_MAX, 1, 1, 60))
    if page_characters != CHARACTERS_MAX:
        made += _apart(pages, links, homes, clients, publishers, pages.choice(calm))
    made += _lags(seed, made, links, clients, routing)
    return Script(
        seed, links, tuple(rng.choice((0.0005, 0.002, 0.02)) for _ in links), rng.choice((None, 1e5, 2e4, 2e4)), homes,
        publishers, routing,
        echo=rng.choice((0.0, 0.0, 0.05)), disk_seconds=rng.choice((0.0, 0.0, 0.003)),
        through_codec=rng.random() < 0.15, events_first=seed % 2 == 1,
        steps=tuple(sorted(made, key=lambda step: step.at)), page_characters=page_characters,
    )  # fmt: skip


def _strangers(seed: int, brokers: list[str], routing: str, end: float) -> list[Step]:
    """Brokers that route otherwise, and come to one of these. Drawn apart: the other steps stay as they are."""
    rng = random.Random(f"strangers {seed}")
    if rng.random() < 0.8:
        return []
    others = [each for each in ("advertisements", "subscriptions", "events") if each != routing]
    return [Step(rng.random() * end, "stranger", (rng.choice(brokers), rng.choice(others)))]


def _apart(
    rng: random.Random, links: Links, homes: dict[str, str], clients: list[str], publishers: tuple[str, ...], at: float
) -> list[Step]:
    """Two sides of a link are apart while much changes; the link is cut again while they compare what they hold, page
    by page. Of a client's subscriptions one is wide at first, so that others come out from behind it. Meanwhile there
    are events, and more changes."""
    client, publisher = rng.choice(clients), rng.choice(publishers)
    link = rng.choice(path(links, homes[client], homes[publisher]) or links)
    link = link if link in links else link[::-1]
    ids = [f"m{number}" for number in range(rng.randint(4, 8))]
    made = [Step(at, "subscribe", (client, ids[0], rng.choice(("TRUE", "x < 9", "y > 2")), None))]
    made += [Step(at, "subscribe", (client, id, clause(rng), None)) for id in ids[1:]]
    start = now = at + 1.0
    slow = rng.choice((0.003, 0.02))
    made += [Step(now, "slow", (*link, slow))]
    heals = []
    for _ in range(rng.randint(1, 4)):
        heals.append(now + rng.choice((0.001, 0.05)))
        made += [Step(now, "cut", link), Step(heals[-1], "heal", link)]
        now = heals[-1] + slow * rng.choice((2.5, 4.5, 6.5, 12.5))
    times = [start + 0.0005, start + 0.0005, *(rng.uniform(start, now) for _ in range(rng.randint(1, 5)))]
    there = dict.fromkeys(ids)
    for number, when in enumerate(sorted(times)):
        id = ids[0] if number == 0 else rng.choice(ids)
        if id not in there:
            there[id] = None
            made.append(Step(when, "subscribe", (client, id, clause(rng), None)))
        elif rng.random() < 0.7:
            made.append(Step(when, "replace", (client, id, clause(rng, 0.5))))
        else:
            del there[id]
            made.append(Step(when, "unsubscribe", (client, id)))
    made += [Step(rng.choice(heals) + slow * 12 * rng.random(), "publish", (publisher, event(rng))) for _ in range(16)]
    return [*made, Step(now, "slow", (*link, 0.002))]


def _lags(seed: int, made: list[Step], links: Links, clients: list[str], routing: str) -> list[Step]:
    """Events wait for slow links while clients move: what is subscribed meanwhile settles before they have come. Drawn
    apart: the other steps stay as they are. Not while advertisements change: their end overtakes such events, too, and
    then the subscriptions that wait for them are withdrawn."""
    rng, steps = random.Random(f"lags {seed}"), list[Step]()
    rests = [step.at for step in made if step.kind == "rest"]
    changes = [
        step.at
        for step in made
        if step.kind in ("advertise", "unadvertise") or (step.kind == "move" and step.args[0] not in clients)
    ]
    for move in made:
        if seed % 2 or move.kind != "move" or move.args[0] not in clients:
            continue
        since, until = max(at for at in rests if at <= move.at), min(at for at in rests if at > move.at)
        if routing == "advertisements" and any(since < at < until for at in changes):
            continue
        for link in rng.sample(links, rng.randint(1, len(links))):
            seconds = rng.choice((0.02, 0.2, 1.0))
            steps += [Step(move.at, "lag", (*link, seconds)), Step(move.at + 0.2, "lag", (*link, 0.0))]
        for at in sorted(move.at + rng.random() * 0.1 for _ in range(3)):
            steps.append(Step(at, "subscribe", (move.args[0], f"lag{len(steps)}", clause(rng), None)))
    return steps


def _growths(seed: int, drawer: _Drawer, end: float) -> list[Step]:
    """Operators who add something else to the space, most often while another one does; the broker that proposes it may
    crash, and what is new is used at once. Drawn apart, too."""
    rng = random.Random(f"growths {seed}")
    if rng.random() < 0.6:
        return []
    now = rng.random() * end / 2
    first, second = rng.choice(drawer.brokers), rng.choice(drawer.brokers)
    made = [Step(now + rng.choice((0.0, 0.001, 0.02)), "grow", (second, OTHER))]
    if rng.random() < 0.7:
        made.append(Step(now, "grow", (first, GROWN)))
    if rng.random() < 0.5:
        broker, keep = rng.choice((first, second, rng.choice(drawer.brokers))), rng.random() < 0.7
        at = now + rng.choice((0.0, 0.002, 0.03, 0.3))
        made += [Step(at, "crash", (broker, keep)), Step(at + rng.choice((0.01, 0.3)), "restart", (broker,))]
    if rng.random() < 0.4:
        link = rng.choice(drawer.links)
        made += [Step(now + rng.choice((0.0, 0.002, 0.03)), "cut", link), Step(now + 0.2, "heal", link)]
    client = rng.choice(drawer.clients)
    wheres = rng.sample(("more > 3", "other", "kind = 'e'", "NOT other OR kind = 'd'", "kind <> 'a'"), 2)
    for where in wheres:
        at = now + rng.choice((0.001, 0.05, 0.3))
        made.append(Step(at, "subscribe", (client, f"g{len(made)}", where, None)))
    for _ in range(8):
        one = event(rng, grown=True) | rng.choice(({}, {"other": rng.random() < 0.5}, {"kind": "e"}))
        made.append(Step(now + rng.random() * 0.5, "publish", (rng.choice(drawer.publishers), one)))
    return made


@cache
def _space() -> Space:
    return Space.parse(GROWN)


def _region(where: str) -> Region:
    return _space().where(where)


class _Drawer:
    """Draws steps, and remembers enough of the earlier ones to draw sensible ones."""

    def __init__(
        self, rng: random.Random, links: Links, brokers: list[str], clients: list[str], publishers: tuple[str, ...]
    ) -> None:
        self.rng, self.links, self.brokers, self.clients, self.publishers = rng, links, brokers, clients, publishers
        self.ids: dict[str, dict[str, str]] = {name: {} for name in clients}  # with their clauses
        self.made = 0
        self.grown = False
        self.kinds = {
            self.subscribe: 8, self._unsubscribe: 5, self._replace: 3, self._publish: 2, self._move: 3,
            self._advertise: 1, self._unadvertise: 1, self._cut: 1, self._crash: 1, self._away: 1, self._lease: 1,
            self._slow: 1, self._join: 1, self._leave: 1, self._relink: 1, self._cycle: 1, self._grow: 1,
        }  # fmt: skip

    def step(self, now: float) -> list[Step]:
        draw = self.rng.choices(list(self.kinds), weights=list(self.kinds.values()))[0]
        return draw(now)

    def _burst(self, now: float, seconds: float, wheres: Iterable[str] = ()) -> list[Step]:
        """Events in the midst of a change, most of them such as it concerns."""
        regions = [_region(where) for where in wheres]
        steps = []
        for at in sorted(now + self.rng.random() * seconds for _ in range(5)):
            for _ in range(8):
                made = event(self.rng, self.grown)
                if not regions or any(region.contains(made) for region in regions):
                    break
            steps.append(Step(at, "publish", (self.rng.choice(self.publishers), made)))
        return steps

    def _new_id(self, client: str, where: str) -> str:
        self.made += 1
        self.ids[client][f"s{self.made}"] = where
        return f"s{self.made}"

    def subscribe(self, now: float, lease: float | None = None) -> list[Step]:
        client, where = self.rng.choice(self.clients), clause(self.rng)
        return [Step(now, "subscribe", (client, self._new_id(client, where), where, lease))]

    def _lease(self, now: float) -> list[Step]:
        return [*self.subscribe(now, 1.0), Step(now + 1.5, "tick", ())]

    def _known(self) -> tuple[str, str] | None:
        client = self.rng.choice(self.clients)
        return (client, self.rng.choice(list(self.ids[client]))) if self.ids[client] else None

    def _unsubscribe(self, now: float) -> list[Step]:
        known = self._known()
        if known is None:
            return []
        where = self.ids[known[0]].pop(known[1])
        return [Step(now, "unsubscribe", known), *self._burst(now, 0.03, [where])]

    def _replace(self, now: float) -> list[Step]:
        known = self._known()
        if known is None:
            return []
        before, where = self.ids[known[0]][known[1]], clause(self.rng)
        self.ids[known[0]][known[1]] = where
        return [Step(now, "replace", (*known, where)), *self._burst(now, 0.03, [before])]

    def _publish(self, now: float) -> list[Step]:
        return self._burst(now, 0.01)

    def _move(self, now: float) -> list[Step]:
        mover = self.rng.choice([*self.clients, *self.publishers])
        burst = self._burst(now, 0.1, self.ids.get(mover, {}).values())
        return [Step(now, "move", (mover, self.rng.choice(self.brokers))), *burst]

    def _advertise(self, now: float) -> list[Step]:
        self.made += 1
        return [Step(now, "advertise", (self.rng.choice(self.publishers), f"a{self.made % 3}", clause(self.rng, 2.0)))]

    def _unadvertise(self, now: float) -> list[Step]:
        return [Step(now, "unadvertise", (self.rng.choice(self.publishers), f"a{self.rng.randrange(3)}"))]

    def _cut(self, now: float) -> list[Step]:
        link = self.rng.choice(self.links)
        return [Step(now, "cut", link), Step(now + self.rng.choice((0.01, 0.3)), "heal", link)]

    def _slow(self, now: float) -> list[Step]:
        """A link takes a second for each message, for a while."""
        link = self.rng.choice(self.links)
        return [Step(now, "slow", (*link, 1.0)), Step(now + 0.1, "slow", (*link, 0.01)), *self._burst(now, 0.1)]

    def _crash(self, now: float) -> list[Step]:
        broker, keep = self.rng.choice(self.brokers), self.rng.random() < 0.6
        return [Step(now, "crash", (broker, keep)), Step(now + self.rng.choice((0.01, 0.3)), "restart", (broker,))]

    def _away(self, now: float) -> list[Step]:
        client = self.rng.choice([*self.clients, *self.publishers])
        return [Step(now, "away", (client,)), Step(now + 0.1, "back", (client,))]

    def _join(self, now: float) -> list[Step]:
        """A broker that was not there before."""
        neighbour, name = self.rng.choice(self.brokers), f"B{len(self.brokers)}"
        if len(self.brokers) >= 15:
            return []
        self.brokers.append(name)
        return [Step(now, "join", (neighbour, name))]

    def _leave(self, now: float) -> list[Step]:
        """A broker leaves for good; the run lets it if it is a leaf and nobody lives there."""
        return [Step(now, "leave", (self.rng.choice(self.brokers),))]

    def _relink(self, now: float) -> list[Step]:
        """A link is given up, and its two sides are joined elsewhere."""
        pair = self.rng.sample(self.brokers, 2)
        return [Step(now, "relink", (self.rng.randrange(1000), *pair))]

    def _cycle(self, now: float) -> list[Step]:
        return [Step(now, "cycle", tuple(self.rng.sample(self.brokers, 2)))]

    def _grow(self, now: float) -> list[Step]:
        if self.grown:
            return []
        self.grown = True
        return [Step(now, "grow", (self.rng.choice(self.brokers), GROWN)), *self._burst(now, 0.2, ["kind = 'd'"])]
