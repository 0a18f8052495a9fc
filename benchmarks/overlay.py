"""Claim: brokers that ask whether a *union* covers tell each other less than those that ask for one that covers, at the
same deliveries; and the broker is fast enough to be asked.

Parts, all of them or those named on the command line. The overlay is the congestion paper's 49 brokers (its figure 8;
what the text leaves open is chosen in sim/topology.py): a core A to E, publishers at three brokers near E, subscribers
at 32 edge brokers, in the simulator, without service times: what is counted are messages and entries, not seconds.

degrees     10,000 subscriptions of 4 attributes in random order, with covering degrees 700, 1400 and 2100
            (sim/workload.py). For `exact`, pairwise retracting, pairwise lazy and none: subscriptions told to core
            brokers at the end and over the whole run, and the table sizes of A to E; then all roots leave, and what
            that makes the core tell. 300 events are checked against brute force, in each. Without retraction by union,
            which is too slow where so many overlap.
comparison  The monte-carlo comparison workload (cover.py), 5,000 subscriptions of 10, 15 and 20 attributes: what is
            told over the links nearest to the publishers (E to P1, P2, P3), `exact` by pairwise, lazy both, and
            retracting both (`exact` then also by union). Floors: at most 40, 55 and 68 %.
handle      Calls of `Broker.handle`: events of 4 attributes at 10,000 subscriptions (about one match each, and about
            sixteen); subscribes with `exact` at 20,000 active boxes of 4 attributes, clauses parsed. Floors: 50,000 and
            5,000 a second.
large       80,000 subscriptions, covering degree 2100, `exact`: seconds of this machine and the most memory. Floors:
            15 minutes, 12 GB. In a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import report
from benchmarks.cover import WIDE_DOMAIN, comparison_boxes
from thatch.broker import Broker, Policy, Settings
from thatch.protocol.messages import Advertise, Deliver, Digest, Hello, LinkUp, Publish, Subscribe, seq_of
from thatch.sim.network import Observer
from thatch.sim.overlay import Overlay
from thatch.sim.topology import congestion
from thatch.sim.workload import DOMAIN, box_clause, covered, events, space_of
from thatch.space.space import Space

POLICIES = {
    "exact lazy": Policy("exact"),
    "exact retracting": Policy("exact", retract=True),
    "exact by union": Policy("exact", retract="union"),
    "pairwise lazy": Policy("pairwise"),
    "pairwise retracting": Policy("pairwise", retract=True),
    "none": Policy(None),
}
CORE = [("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")]
LAST = [("E", "P1"), ("E", "P2"), ("E", "P3")]


class Delivered(Observer):
    """Who got which event."""

    def __init__(self) -> None:
        self.by_event: dict[str, list[str]] = {}

    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None:
        self.by_event.setdefault(delivered.event.id, []).extend(delivered.ids)


def overlay(space: Space, policy: Policy, observer: Observer | None = None) -> Overlay:
    links, publishers, subscribers = congestion()
    return Overlay(space, links, subscribers, publishers, Settings(policy=policy), observer=observer)


def degrees(options: argparse.Namespace) -> None:
    rows = []
    count = round(10_000 * options.scale)
    for degree in (700, 1400, 2100):
        made = covered(count, max(1, round(degree * options.scale)), random.Random(degree))
        for name, policy in POLICIES.items():
            if policy.retract == "union":
                continue  # it asks again about each of hundreds that a newcomer meets: minutes for each of these rows
            progress(f"degrees: {degree}, {name}")
            seen = Delivered()
            net = overlay(space_of(4), policy, seen)
            for each in made:
                net.subscribe(each.id, each.where)
            net.network.run()
            sizes = [net.network.nodes[broker].broker.table_size() for broker in "ABCDE"]
            told, sent = net.sent(CORE), _sent(net)
            roots = [each.id for each in made if each.is_root]
            for root in roots:
                net.unsubscribe(root)
            net.network.run()
            rows.append(
                {
                    "degree": degree, "policy": name, "told in the core": told, "of none": told / count,
                    "sent in the core": sent, **dict(zip("ABCDE", sizes, strict=True)),
                    "sent when the roots leave": _sent(net) - sent,
                }
            )  # fmt: skip
            _check_deliveries(net, seen, roots, made)
    core = {row["degree"]: row["told in the core"] for row in rows if row["policy"] == "none"}
    for row in rows:
        row["of none"] = row["told in the core"] / core[row["degree"]]
    report("overlay_degrees", rows)


def _sent(net: Overlay) -> int:
    """Subscriptions and withdrawals that core brokers have sent to one another."""
    counts = [net.network.nodes[one].broker.links[other].counts for one, other in CORE]
    return sum(each.entries_sent + each.entries_withdrawn for each in counts)


def _check_deliveries(net: Overlay, seen: Delivered, gone: Sequence[str], made: Sequence[Any]) -> None:
    """Some events, by brute force: whatever is told to whom, everybody gets what it wants and nothing else."""
    space, rng = space_of(4), random.Random(1)
    regions = {each.id: space.where(each.where) for each in made if each.id not in set(gone)}
    published = list(events(300, rng))
    for event in published:
        net.publish(event)
    net.network.run()
    got = sorted(sorted(ids) for ids in seen.by_event.values())
    wanted = sorted(
        wants for event in published if (wants := sorted(id for id, each in regions.items() if each.contains(event)))
    )
    assert got == wanted, "deliveries differ from brute force"


def comparison(options: argparse.Namespace) -> None:
    rows = []
    for attributes, most in ((10, 0.40), (15, 0.55), (20, 0.68)):
        low, high = comparison_boxes(round(5_000 * options.scale), attributes, seed=attributes)
        clauses = [box_clause(a, b, WIDE_DOMAIN) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        found = {}
        for name, policy in POLICIES.items():
            if name == "none":
                continue
            progress(f"comparison: {attributes}, {name}")
            net = overlay(space_of(attributes, WIDE_DOMAIN), policy)
            for at, where in enumerate(clauses):
                net.subscribe(f"s{at}", where)
            net.network.run()
            found[name] = net.sent(LAST)
        for kind, rival in (("lazy", "lazy"), ("retracting", "retracting"), ("by union", "retracting")):
            exact, one = found[f"exact {kind}"], found[f"pairwise {rival}"]
            rows.append(
                {
                    "attributes": attributes, "kind": kind, "subscriptions": len(clauses), "exact tells": exact,
                    "pairwise tells": one, "exact / pairwise": exact / one, "at most": most,
                }
            )  # fmt: skip
    report("overlay_comparison", rows)


def handle(options: argparse.Namespace) -> None:
    rows = []
    for what, width in (("events, narrow", 1_000), ("events, wide", 2_000)):
        progress(f"handle: {what}")
        broker, published = _loaded(10_000, width), [Publish(f"c0:{at}", e) for at, e in enumerate(_events(20_000))]
        rates, effects = [], 0
        for _ in range(options.rounds):
            began = time.perf_counter()
            effects = sum(len(broker.handle(event, "c0", 0.0)) for event in published)
            rates.append(len(published) / (time.perf_counter() - began))
        rows.append(_rate(what, rates, 50_000, effects / len(published)))
    progress("handle: subscribes")
    rates = [_subscribes() for _ in range(options.rounds)]
    rows.append(_rate("subscribes", rates, 5_000, 4.0))
    report("overlay_handle", rows)
    if options.ours:
        print(f"speed: {statistics.geometric_mean(row['a second'] for row in rows):.6g}")


def _rate(what: str, rates: list[float], floor: int, effects: float) -> dict[str, Any]:
    return {"what": what, "a second": round(statistics.median(rates)), "floor": floor, "effects each": effects}


def _events(count: int) -> list[dict[str, int]]:
    return list(events(count, random.Random(2)))


def _boxes(count: int, width: int) -> list[str]:
    rng = random.Random(3)
    lows = [[rng.randrange(DOMAIN - width) for _ in range(4)] for _ in range(count)]
    return [box_clause(low, [each + width for each in low]) for low in lows]


def _connected(broker: Broker, name: str, session: int, is_client: bool) -> None:
    broker.handle(LinkUp(session, is_client), name, 0.0)
    members = () if is_client else (name,)
    broker.handle(Hello(name, session, broker.space.to_json(), is_client, members=members), name, 0.0)
    if not is_client:
        broker.handle(Digest(seq_of(session, 1), 1, (0,), (0,)), name, 0.0)


def _loaded(count: int, width: int) -> Broker:
    """Three neighbours and twenty clients, that share the subscriptions."""
    broker = Broker("B", space_of(4), Settings())
    names = [("N1", False), ("N2", False), ("N3", False), *((f"c{at}", True) for at in range(20))]
    heard = dict.fromkeys((name for name, _ in names), 0)
    for session, (name, is_client) in enumerate(names, 1):
        _connected(broker, name, session, is_client)
        heard[name] = seq_of(session, 0 if is_client else 1)

    def told(name: str) -> int:
        heard[name] += 1
        return heard[name]

    broker.handle(Advertise(told("c0"), "all", "TRUE"), "c0", 0.0)
    for at, where in enumerate(_boxes(count, width)):
        name = names[at % len(names)][0]
        broker.handle(Subscribe(told(name), f"{name}/{at}/s", where), name, 0.0)
    assert broker.table_size() == count
    return broker


def _subscribes(active: int = 20_000, more: int = 4_000) -> float:
    """Calls a second, of those that come when so many boxes are active."""
    broker = Broker("B", space_of(4), Settings(routing="subscriptions"))
    _connected(broker, "N1", 1, is_client=False)
    _connected(broker, "c0", 2, is_client=True)
    messages = [Subscribe(seq_of(2, at), f"s{at}", where) for at, where in enumerate(_boxes(active + more, 800), 1)]
    for message in messages[:active]:
        broker.handle(message, "c0", 0.0)
    assert len(broker.outbound("subscriptions", "N1").active_set.active) > 0.99 * active
    began = time.perf_counter()
    for message in messages[active:]:
        broker.handle(message, "c0", 0.0)
    return more / (time.perf_counter() - began)


def large(options: argparse.Namespace) -> None:
    progress("large: 80,000 subscriptions on 49 brokers")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        report("overlay_large", [pool.apply(_large, (round(80_000 * options.scale), round(2100 * options.scale)))])


def _large(count: int, degree: int) -> dict[str, Any]:
    began = time.perf_counter()
    net = overlay(space_of(4), Policy("exact"))
    for each in covered(count, degree, random.Random(5)):
        net.subscribe(each.id, each.where)
    net.network.run()
    handled = sum(sum(node.handled.values()) for node in net.network.nodes.values())
    settled = all(
        client.is_settled(broker, *key)
        for client in net.network.clients.values()
        for broker, home in client.homes.items()
        for key in home.wheres
    )
    assert settled and len(net.where) == count
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "subscriptions": count, "brokers": len(net.network.nodes), "seconds": round(time.perf_counter() - began, 1),
        "at most s": 900, "GB": round(memory, 2), "at most GB": 12, "messages handled": handled,
        "told in the core": net.sent(CORE),
    }  # fmt: skip


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "degrees": degrees, "comparison": comparison, "handle": handle, "large": large,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="What brokers tell each other, by policy; and how fast they are.")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar=" | ".join(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the sizes, to try it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ours", action="store_true", help="with `handle`: a speed comes last")
    options = parser.parse_args()
    if options.ours and options.parts != ["handle"]:
        parser.error("--ours goes with the part handle")
    if options.ours:
        options.rounds = 1
    for name in options.parts or PARTS:
        PARTS[name](options)


if __name__ == "__main__":
    main()
