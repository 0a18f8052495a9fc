"""Experiments by name, for `thatch simulate`. Each builds an overlay, schedules what happens, and says who is who.

The congestion paper's, with its settings as defaults (figures 9 to 18; what it leaves open is said where it is chosen).
Subscriptions are loaded without service times, at once; then brokers are busy as the cost model says, events come, and
when two fifths of them have come (so that there is a history to prune by), subscriptions begin to leave.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from thatch.broker import Policy, Settings
from thatch.errors import CallerError, unknown
from thatch.sim.costs import Cost, complex_engine, congestion, free, measured
from thatch.sim.overlay import Overlay
from thatch.sim.record import Recorder
from thatch.sim.topology import CORE, Links, chain, domains, names_of, regions
from thatch.sim.topology import congestion as congestion_links
from thatch.sim.workflow import activity_events, draw_processes, workflow_space
from thatch.sim.workload import FITTED, Generated, covered, events, space_of
from thatch.space.space import Space

BEFORE = 0.4  # of the events, before anything leaves
TICK = 0.25  # seconds
SLOWLY = 0.2  # replacements a second, where each costs a broker seconds
TICKING = 60.0  # seconds after the last event in which brokers still hear that time passes
LOADING = 1e-3  # seconds between subscriptions that are loaded


@dataclass(frozen=True, slots=True)
class Options:
    """None: the scenario's own, most often the paper's."""

    subscriptions: int | None = None
    degree: int | None = None  # covering degree
    events: int | None = None
    unsubscriptions: int | None = None
    policy: Policy = field(default_factory=Policy)
    routing: str = "advertisements"
    costs: str | None = None
    seed: int = 0
    idle_seconds: float = 30.0
    replacements_per_second_max: float | None = None
    events_first: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """Options with nothing left open."""

    subscriptions: int
    degree: int
    events: int
    unsubscriptions: int
    costs: str
    settings: Settings
    seed: int
    events_first: bool


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    run: Callable[[Chosen, Recorder], Overlay]
    subscriptions: int = 2_000
    degree: int = 200
    events: int = 500
    unsubscriptions: int = 20
    costs: str = "congestion"
    replacements_per_second_max: float = 4.0  # each costs a broker 13 ms

    def chosen(self, options: Options) -> Chosen:
        own_pace = self.replacements_per_second_max
        pace = own_pace if options.replacements_per_second_max is None else options.replacements_per_second_max
        settings = Settings(
            options.routing,  # type: ignore[arg-type]
            options.policy,
            idle_seconds=options.idle_seconds,
            replacements_per_second_max=pace,
        )
        names = ("subscriptions", "degree", "events", "unsubscriptions", "costs")
        own = {name: getattr(self if getattr(options, name) is None else options, name) for name in names}
        return Chosen(**own, settings=settings, seed=options.seed, events_first=options.events_first)

    def build(self, options: Options, recorder: Recorder) -> Overlay:
        return self.run(self.chosen(options), recorder)


# --- Wide subscriptions leave ----------------------------------------------------------------------------------------


def unsubscriptions(chosen: Chosen, recorder: Recorder) -> Overlay:
    """Figures 9 to 11 and table III: an event every 10 ms, and roots leave, one every 0.5 s."""
    net = _congestion(chosen, recorder)
    made = _loaded(net, chosen)
    return _leaving(net, chosen, recorder, made, every=0.01)


def complex_(chosen: Chosen, recorder: Recorder) -> Overlay:
    """Figures 13 to 15: the complex engine, many roots, an event every 400 ms."""
    net = _congestion(chosen, recorder)
    return _leaving(net, chosen, recorder, _loaded(net, chosen), every=0.4)


def clustered(chosen: Chosen, recorder: Recorder) -> Overlay:
    """Figure 16: subscriptions related by covering live at 2 to 4 adjacent brokers; here, at some of those behind one
    inner broker."""
    net = _congestion(chosen, recorder)
    rng = random.Random(chosen.seed + 1)
    inner: dict[str, list[str]] = {}
    for one, other in net.links:
        if other in net.subscriber_brokers:
            inner.setdefault(one, []).append(other)
    clusters: dict[str, list[str]] = {}

    def place(each: Generated) -> str:
        root = each.id.split("c")[0]
        if root not in clusters:
            behind = rng.choice(list(inner.values()))
            clusters[root] = rng.sample(behind, min(len(behind), rng.randint(2, 4)))
        return rng.choice(clusters[root])

    return _leaving(net, chosen, recorder, _loaded(net, chosen, place), every=0.4)


def _loaded(net: Overlay, chosen: Chosen, place: Callable[[Generated], str] | None = None) -> list[Generated]:
    rng = random.Random(chosen.seed)
    made = covered(chosen.subscriptions, chosen.degree, rng, child=FITTED)
    for at, each in enumerate(made):
        net.subscribe(each.id, each.where, net.network.now + LOADING * at, place and place(each))
    return made


def _leaving(net: Overlay, chosen: Chosen, recorder: Recorder, made: list[Generated], every: float) -> Overlay:
    begin = net.network.now + LOADING * len(made) + 5.0
    rng = random.Random(chosen.seed + 2)
    published = [(begin + every * at, event, None) for at, event in enumerate(events(chosen.events, rng))]
    _at_work(net, chosen, recorder, begin, published)
    roots = [each.id for each in made if each.is_root]
    for at, root in enumerate(roots[: chosen.unsubscriptions]):
        net.unsubscribe(root, begin + BEFORE * every * chosen.events + 0.5 * at)
    return net


# --- Monitors come and go --------------------------------------------------------------------------------------------


def workflow(chosen: Chosen, recorder: Recorder) -> Overlay:
    """Figure 12: processes of activities on engines of four domains; each activity waits for those before it, some
    processes are monitored, and four clients want every event for a minute in ten. A process is triggered every second
    (the paper does not say)."""
    links, engines = domains()
    edge = dict.fromkeys(engines, "engines")
    net = _overlay(links, names_of(links), engines, chosen, workflow_space(), edge)
    rng = random.Random(chosen.seed)
    processes = draw_processes(engines, rng)
    begin = net.network.now + 5.0
    for process in processes:
        for id, broker, where in process.subscriptions():
            net.subscribe(id, where, net.network.now, broker)
        if rng.random() < 0.3:
            net.subscribe(f"m{process.number}", f"process = {process.number}", net.network.now)
    published: list[tuple[float, dict[str, Any], str | None]] = []
    second = 0
    while len(published) < chosen.events:
        published += activity_events(rng.choice(processes), begin + second, rng)
        second += 1
    _at_work(net, chosen, recorder, begin, published)
    for turn in range(int(second / 600) + 1):
        for monitor in range(4):
            start = begin + 600.0 * turn + 60.0 + 5.0 * monitor
            net.subscribe(f"all{monitor}/{turn}", "TRUE", start, engines[monitor * len(engines) // 4])
            net.unsubscribe(f"all{monitor}/{turn}", start + 60.0)
    return net


def mobile(chosen: Chosen, recorder: Recorder) -> Overlay:
    """Figure 18, (a) and (c): four monitors, one a region, that want everything, move, one every 2 minutes."""
    return _mobile(chosen, recorder, all_move=False)


def mobile_all(chosen: Chosen, recorder: Recorder) -> Overlay:
    """Figure 18, (b) and (d): and the other subscriptions move within their regions, one a second."""
    return _mobile(chosen, recorder, all_move=True)


def _mobile(chosen: Chosen, recorder: Recorder, all_move: bool) -> Overlay:
    """`unsubscriptions` counts the moves of monitors; events come evenly during them."""
    links, by_region = regions()
    everywhere = names_of(links)
    rng = random.Random(chosen.seed)
    edge = {name: "edge" for names in by_region for name in names}
    publishers = rng.sample(list(edge), min(40, len(edge)))
    net = _overlay(links, everywhere, publishers, chosen, space_of(4), edge)
    made = covered(chosen.subscriptions, chosen.degree, rng)
    place = {each.id: rng.randrange(len(by_region)) for each in made}
    for at, each in enumerate(made):
        net.subscribe(each.id, each.where, net.network.now + LOADING * at, rng.choice(by_region[place[each.id]]))
    begin = net.network.now + LOADING * len(made) + 5.0
    for region, own in enumerate(by_region):
        net.subscribe(f"monitor{region}/0", "TRUE", begin - 4.0, rng.choice(own))
    seconds = 120.0 * chosen.unsubscriptions
    published = [
        (begin + seconds * at / max(1, chosen.events), event, None)
        for at, event in enumerate(events(chosen.events, rng))
    ]
    _at_work(net, chosen, recorder, begin, published)
    for move in range(chosen.unsubscriptions):
        region, turn, when = move % 4, move // 4, begin + 120.0 * (move + 1)
        net.subscribe(f"monitor{region}/{turn + 1}", "TRUE", when, rng.choice(by_region[region]))
        net.unsubscribe(f"monitor{region}/{turn}", when + 5.0)
    names = {each.id: each.id for each in made}
    for second in range(int(seconds) if all_move else 0):
        each = rng.choice(made)
        old, names[each.id] = names[each.id], f"{each.id}/{second}"
        net.subscribe(names[each.id], each.where, begin + second, rng.choice(by_region[place[each.id]]))
        net.unsubscribe(old, begin + second + 2.0)
    return net


# --- Others ----------------------------------------------------------------------------------------------------------


def arrivals(chosen: Chosen, recorder: Recorder) -> Overlay:
    """Subscriptions arrive in random order, and events among them: what is forwarded, and how tables grow."""
    net = _congestion(chosen, recorder)
    rng = random.Random(chosen.seed)
    made = covered(chosen.subscriptions, chosen.degree, rng)
    start, seconds = net.network.now, 0.05 * len(made)
    published = [(start + rng.random() * seconds, event, None) for event in events(chosen.events, rng)]
    _at_work(net, chosen, recorder, start, published)
    for at, each in enumerate(made):
        net.subscribe(each.id, each.where, start + 0.05 * at)
    return net


def line(chosen: Chosen, recorder: Recorder) -> Overlay:
    """A chain of ten brokers, the publisher at one end and the subscribers at the others: what one broker tells the
    next."""
    names = [f"B{at}" for at in range(10)]
    edge = {"B0": "publishers' edge"} | dict.fromkeys(names[1:], "subscribers' edge")
    net = _overlay(chain(names), names[1:], names[:1], chosen, space_of(4), edge)
    rng = random.Random(chosen.seed)
    made = covered(chosen.subscriptions, chosen.degree, rng)
    start = net.network.now
    later = start + 0.05 * len(made) + 5.0
    published = [(later + 0.02 * at, event, None) for at, event in enumerate(events(chosen.events, rng))]
    _at_work(net, chosen, recorder, start, published)
    for at, each in enumerate(made):
        net.subscribe(each.id, each.where, start + 0.05 * at)
    return net


# --- What they share -------------------------------------------------------------------------------------------------


def _congestion(chosen: Chosen, recorder: Recorder) -> Overlay:
    links, publishers, subscribers = congestion_links()
    edge = dict.fromkeys(subscribers, "subscribers' edge") | dict.fromkeys(publishers, "publishers' edge")
    return _overlay(links, subscribers, publishers, chosen, space_of(4), edge | dict.fromkeys(CORE, "core"))


def _overlay(
    links: Links, subscribers: list[str], publishers: list[str], chosen: Chosen, space: Space, tiers: Mapping[str, str]
) -> Overlay:
    if chosen.costs not in COSTS:
        raise CallerError(unknown("cost model", chosen.costs, COSTS))
    net = Overlay(space, links, subscribers, publishers, chosen.settings, chosen.seed)
    net.network.events_first = chosen.events_first
    net.tiers = {name: tiers.get(name, "inner") for name in names_of(links)}
    return net


def _at_work(
    net: Overlay,
    chosen: Chosen,
    recorder: Recorder,
    begin: float,
    published: Iterable[tuple[float, Mapping[str, Any], str | None]],
) -> None:
    """From a time on, brokers are busy with messages and somebody watches; events come at their times, from somewhere
    or a publisher's broker; and brokers hear now and then that time passes."""
    net.network.observer = recorder
    net.network.at(begin, net.charge, COSTS[chosen.costs])
    net.network.at(begin, recorder.start, net.network, net.tiers)
    last = begin
    for at, event, broker in published:
        net.publish(event, at, broker)
        last = max(last, at)
    if chosen.settings.is_incremental:
        net.network.at(begin, net.pass_time, TICK, last + TICKING)


COSTS: dict[str, Callable[[Settings], Cost]] = {
    "free": lambda settings: free,
    "measured": lambda settings: measured,
    "congestion": lambda settings: congestion(settings.policy),
    "complex": lambda settings: complex_engine(settings.policy),
}

SCENARIOS = {
    each.name: each
    for each in (
        Scenario("unsubscriptions", "the widest leave, of 49 brokers (congestion, figures 9 to 11)", unsubscriptions,
                 80_000, 2_100, 14_000, 20),
        Scenario("complex", "the same with a slow cover engine (figures 13 to 15)", complex_,
                 30_000, 30, 21_000, 300, "complex", SLOWLY),
        Scenario("clustered", "related subscriptions live near one another (figure 16)", clustered,
                 30_000, 30, 21_000, 300, "complex", SLOWLY),
        Scenario("workflow", "processes on engines of four domains, monitored now and then (figure 12)", workflow,
                 events=20_000),
        Scenario("mobile", "monitors that want everything move (figure 18 a, c)", mobile,
                 5_000, 30, 21_600, 180, "complex", SLOWLY),
        Scenario("mobile-all", "and everybody else moves, too (figure 18 b, d)", mobile_all,
                 5_000, 30, 21_600, 180, "complex", SLOWLY),
        Scenario("arrivals", "subscriptions and events come to 49 brokers", arrivals),
        Scenario("line", "a chain of ten brokers, the publisher at one end", line),
    )
}  # fmt: skip
