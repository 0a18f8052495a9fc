"""Experiments by name, for `thatch simulate`. Each builds an overlay, schedules what happens, and says who is who."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from thatch.broker import Policy, Settings
from thatch.errors import CallerError
from thatch.sim.costs import Cost, congestion, free, measured
from thatch.sim.overlay import Overlay
from thatch.sim.record import Recorder
from thatch.sim.topology import CORE, chain, names_of
from thatch.sim.topology import congestion as congestion_links
from thatch.sim.workload import covered, events, space_of

SETTLING = 5.0  # seconds between the last subscription and what follows


@dataclass(frozen=True, slots=True)
class Options:
    subscriptions: int = 2_000
    degree: int = 200  # covering degree
    events: int = 500
    unsubscriptions: int = 20
    policy: Policy = field(default_factory=Policy)
    routing: str = "advertisements"
    costs: str = "congestion"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    build: Callable[[Options, Recorder], Overlay]


def unsubscriptions(options: Options, recorder: Recorder) -> Overlay:
    """Congestion, figure 9: a network at work, and then some of the widest subscriptions leave, one every 0.5 s. The
    subscriptions come at a rate that the brokers can bear."""
    net = _congestion(options, recorder)
    rng = random.Random(options.seed)
    made = covered(options.subscriptions, options.degree, rng)
    start = net.network.now
    for at, each in enumerate(made):
        net.subscribe(each.id, each.where, start + 0.05 * at)
    begin = start + 0.05 * len(made) + SETTLING
    roots = [each.id for each in made if each.is_root]
    for at, root in enumerate(roots[: options.unsubscriptions]):
        net.unsubscribe(root, begin + 0.5 * at)
    for at, event in enumerate(events(options.events, rng)):
        net.publish(event, begin + 0.05 * at)
    return net


def arrivals(options: Options, recorder: Recorder) -> Overlay:
    """Subscriptions arrive in random order, and events among them: what is told, and how tables grow."""
    net = _congestion(options, recorder)
    rng = random.Random(options.seed)
    made = covered(options.subscriptions, options.degree, rng)
    start, published = net.network.now, list(events(options.events, rng))
    for at, each in enumerate(made):
        net.subscribe(each.id, each.where, start + 0.05 * at)
    for event in published:
        net.publish(event, start + 0.05 * rng.random() * len(made))
    return net


def line(options: Options, recorder: Recorder) -> Overlay:
    """A chain of ten brokers, the publisher at one end and the subscribers at the others: what one broker tells the
    next."""
    names = [f"B{at}" for at in range(10)]
    net = _overlay(chain(names), names[1:], names[:1], options, recorder)
    rng = random.Random(options.seed)
    made = covered(options.subscriptions, options.degree, rng)
    for at, each in enumerate(made):
        net.subscribe(each.id, each.where, net.network.now + 0.05 * at)
    for at, event in enumerate(events(options.events, rng)):
        net.publish(event, net.network.now + 0.05 * len(made) + SETTLING + 0.02 * at)
    return net


def _congestion(options: Options, recorder: Recorder) -> Overlay:
    links, publishers, subscribers = congestion_links()
    return _overlay(links, subscribers, publishers, options, recorder)


def _overlay(
    links: list[tuple[str, str]], subscribers: list[str], publishers: list[str], options: Options, recorder: Recorder
) -> Overlay:
    settings = Settings(options.routing, options.policy)  # type: ignore[arg-type]
    net = Overlay(
        space_of(4), links, subscribers, publishers, settings, options.seed, _cost(options.costs), observer=recorder
    )
    edge = dict.fromkeys(subscribers, "subscribers' edge") | dict.fromkeys(publishers, "publishers' edge")
    tiers = {name: edge.get(name, "core" if name in CORE else "inner") for name in names_of(links)}
    net.network.at(net.network.now, recorder.start, net.network, tiers)
    return net


def _cost(name: str) -> Callable[[Settings], Cost]:
    costs: dict[str, Callable[[Settings], Cost]] = {
        "free": lambda settings: free,
        "measured": lambda settings: measured,
        "congestion": lambda settings: congestion(settings.policy),
    }
    if name not in costs:
        raise CallerError(f"no cost model {name!r}; there are {', '.join(costs)}")
    return costs[name]


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("unsubscriptions", "the widest leave, of 49 brokers (congestion, figure 9)", unsubscriptions),
        Scenario("arrivals", "subscriptions and events come to 49 brokers", arrivals),
        Scenario("line", "a chain of ten brokers, the publisher at one end", line),
    )
}  # fmt: skip
