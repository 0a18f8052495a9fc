"""Claim: when wide subscriptions leave, incremental pruning keeps the overlay calm: a tenth of the messages, or fewer,
at the broker nearest the publishers, and events come as fast as if nobody had left.

The congestion paper's default (its figure 9): 49 brokers, 80,000 subscriptions of 4 attributes with covering degree
2,100, an event every 10 ms, and 20 of the roots leave, one every 0.5 s. In the simulator, with the service times of the
paper's table II; what the paper leaves open is chosen in sim/topology.py and sim/workload.py. Four policies, each with
`pairwise` and with `exact`:

retracting    the paper's *active* covering: a wider subscription takes back the narrower ones told before
lazy          it does not
packed        retracting, and an unsubscription carries its replacements
incremental   retracting, and what leaves is kept beyond the broker from which more than theta = 0.9 of its events are
              wanted by others, too; before that, what it hid is told little by little, 2 a second from each broker;
              also packed, and with all told at once, as in the paper

and, for each of retracting and lazy, the same run in which nobody leaves. Queues are in order, as in the paper; and,
for some, events come first and overtake what brokers tell one another about subscriptions (sim/network.py).

The subscriptions are loaded without service times; then events come for as long as a window of the statistics, so that
there is a history to judge by; then the first one leaves. Variants of one engine start from the same state (a copy of
the process). A run goes on until nothing is left to be told. The events of the last half second are checked against
brute force.

control E     messages of subscribing and unsubscribing that broker E, next to the publishers, handles from the first
              unsubscription on, to the end; `carried` counts the subscriptions in them
exposed       subscriptions told over links of the core, from then on
queue         longest queue of a core broker; and the integral over all core brokers, in message-seconds
during, after delay of events published in the first 20 s from the first unsubscription on, and in the 40 s after that
table         subscriptions held by core brokers in the end, mean
false pos.    events that came to a broker where nobody wanted them, of all that came from neighbours, from then on
phi           the similarity of what leaves to the others, by the statistics at its own broker and by all its events, at
              the broker of the core that is nearest to it; mean and largest difference
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks import RESULTS, report
from thatch.broker import Policy, Settings, similarity
from thatch.broker.dryrun import carried
from thatch.protocol.messages import Deliver, Publish
from thatch.sim.costs import congestion as congestion_costs
from thatch.sim.network import Observer
from thatch.sim.overlay import Overlay
from thatch.sim.topology import CORE, congestion, path
from thatch.sim.workload import FITTED, Generated, covered, events, space_of

EVERY = 0.01  # seconds between events
LEAVING = 0.5  # seconds between unsubscriptions
DURING, AFTER = 20.0, 40.0
PACE, TICK = 2.0, 0.25  # told a second in place of what leaves; seconds
PICTURE = RESULTS / "calm.png"
BASES = {
    "retracting": (None, "retracting", "packed", "incremental", "incremental packed", "incremental at once"),
    "lazy": (None, "lazy"),
}
POLICIES = ("retracting", "lazy", "packed", "incremental at once", "incremental")  # in the picture
EVENTS_FIRST = (None, "retracting", "incremental")  # that run with both kinds of queues
QUEUES = {"in order": False, "events first": True}


class Watch(Observer):
    """Delays by the time of publication, who got what, queues and messages of the core."""

    def __init__(self) -> None:
        self.published_at: dict[str, float] = {}
        self.delays: list[tuple[float, float]] = []
        self.got: Counter[str] = Counter()
        self.queue_max = 0
        self.queue_integral = 0.0
        self.queues: list[tuple[float, int]] = []  # the longest of the core, at each sample

    def published(self, client: str, broker: str, event: Publish, now: float) -> None:
        self.published_at[event.id] = now

    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None:
        began = self.published_at[delivered.event.id]
        self.delays.append((began, now - began))
        self.got[delivered.event.id] += len(delivered.ids)

    def sample(self, net: Overlay) -> None:
        queues = [net.network.nodes[name].waiting for name in CORE]
        self.queue_max = max(self.queue_max, *queues)
        self.queues.append((net.network.now, max(queues)))
        self.queue_integral += TICK * sum(queues)


class Experiment:
    def __init__(self, options: argparse.Namespace, cover: str, base: str) -> None:
        self.options, self.watch = options, Watch()
        policy = Policy(cover, retract=base == "retracting", packed=True, theta=options.theta)
        links, publishers, subscribers = congestion()
        self.settings = Settings(policy=policy, idle_seconds=math.inf, replacements_per_second_max=PACE)
        self.net = Overlay(
            space_of(4), links, subscribers, publishers, self.settings, options.seed, observer=self.watch
        )
        rng = random.Random(options.seed)
        count, degree = round(80_000 * options.scale), max(1, round(2_100 * options.scale))
        self.made = covered(count, degree, rng, child=FITTED)
        began = time.perf_counter()
        for at, each in enumerate(self.made):
            self.net.subscribe(each.id, each.where, self.net.network.now + 1e-3 * at)
        self.net.network.run()
        self.loading = time.perf_counter() - began
        self.net.charge(lambda settings: congestion_costs(settings.policy))
        begin = self.net.network.now
        self.start = begin + options.warm
        total = round((options.warm + DURING + AFTER) / EVERY)
        self.events = list(events(total, rng))
        for at, event in enumerate(self.events):
            self.net.publish(event, begin + EVERY * at)
        self.net.network.run(self.start)

    def run(self, variant: str | None, queues: str) -> dict[str, Any]:
        """From the state as it is when the first one leaves. In a process of its own."""
        net, watch, options = self.net, self.watch, self.options
        net.network.events_first = QUEUES[queues]
        if variant in ("retracting", "lazy"):
            net.retune(self.settings.tuned(packed=False, theta=None))
        elif variant == "packed":
            net.retune(self.settings.tuned(theta=None))
        elif variant == "incremental":
            net.retune(self.settings.tuned(packed=False))
        elif variant == "incremental at once":
            net.retune(replace(self.settings.tuned(packed=False), replacements_per_second_max=0.0))
        before = self._totals()
        roots = [each for each in self.made if each.is_root][: options.unsubscriptions]
        phi = self._phi(roots) if variant and "incremental" in variant else None
        for at, root in enumerate(roots if variant else ()):
            net.unsubscribe(root.id, self.start + LEAVING * at)
        counts = Counter[str]()
        self._count_carried(counts)
        self._tick()
        began = time.perf_counter()
        net.network.run()
        after = self._totals()
        self._check_deliveries(roots if variant else ())
        during = self._delays(self.start, self.start + DURING)
        later = self._delays(self.start + DURING, self.start + DURING + AFTER)
        arrived = after["events"] - before["events"]
        tables = [net.network.nodes[name].broker.table_size() for name in CORE]
        return {
            "variant": variant or "nobody leaves", "queues": queues,
            "control E": after["E"] - before["E"], "carried": counts["E"], "exposed": after["told"] - before["told"],
            "control core": after["core"] - before["core"],
            "queue": watch.queue_max, "queue integral": round(watch.queue_integral),
            "p50 during": 1e3 * float(np.quantile(during, 0.5)), "p99 during": 1e3 * float(np.quantile(during, 0.99)),
            "p50 after": 1e3 * float(np.quantile(later, 0.5)), "p99 after": 1e3 * float(np.quantile(later, 0.99)),
            "table": float(np.mean(tables)), "false positives": (after["false"] - before["false"]) / max(arrived, 1),
            "preserved": sum(len(link.outbound.subscriptions.preserved) for node in net.network.nodes.values()
                             for link in node.broker.links.values()),
            "calm after s": round(net.network.now - self.start, 1), "phi": phi,
            "series": self._series(counts, tables),
            "seconds": round(time.perf_counter() - began, 1), "loading": round(self.loading, 1),
        }  # fmt: skip

    def _tick(self) -> None:
        """Time passes, and queues are looked at, until everything has left as far as it is to."""
        network = self.net.network
        network.tick()
        self.watch.sample(self.net)
        if network.is_busy or self.net.is_leaving:
            network.at(network.now + TICK, self._tick)

    def _totals(self) -> dict[str, int]:
        nodes = self.net.network.nodes
        kinds = ("Subscribe", "Unsubscribe", "Replace")
        links = [link for node in nodes.values() for link in node.broker.links.values() if not link.is_client]
        core = [link for name in CORE for link in nodes[name].broker.links.values() if not link.is_client]
        return {
            "E": sum(nodes["E"].handled[kind] for kind in kinds),
            "core": sum(nodes[name].handled[kind] for name in CORE for kind in kinds),
            "told": sum(link.counts.entries_sent for link in core),
            "events": sum(link.counts.events_in for link in links),
            "false": sum(link.counts.false_positives for link in links),
        }

    def _count_carried(self, counts: Counter[str]) -> None:
        """Subscriptions that come to core brokers, also within packed messages."""
        for name in CORE:
            self._count_at(name, counts)

    def _count_at(self, name: str, counts: Counter[str]) -> None:
        broker = self.net.network.nodes[name].broker
        handle = broker.handle

        def counted(message: Any, link: str, now: float) -> Any:
            counts[name] += carried(message)[0]
            return handle(message, link, now)

        broker.handle = counted  # type: ignore[method-assign]

    def _series(self, counts: Counter[str], tables: list[int]) -> dict[str, Any]:
        """For the picture: mean delays by second of publication, queues, subscriptions that came, and tables."""
        delays: dict[int, list[float]] = {}
        for published, delay in self.watch.delays:
            delays.setdefault(int(published - self.start), []).append(delay)
        return {
            "delay": [(second, float(np.mean(of))) for second, of in sorted(delays.items())],
            "queue": [(at - self.start, length) for at, length in self.watch.queues],
            "carried": {name: counts[name] for name in CORE}, "table": dict(zip(CORE, tables, strict=True)),
        }  # fmt: skip

    def _delays(self, begin: float, end: float) -> list[float]:
        return [delay for published, delay in self.watch.delays if begin <= published < end]

    def _check_deliveries(self, gone: Iterable[Generated]) -> None:
        """Some of the events published after the last one had left and all had calmed down would be delivered exactly;
        here those of the last seconds, by brute force."""
        left = {each.id for each in gone}
        space = self.net.space
        regions = [space.where(each.where) for each in self.made if each.id not in left]
        ids = [id for id, at in self.watch.published_at.items() if at >= self.start + DURING + AFTER - 0.5]
        for id, event in zip(ids, self.events[-len(ids) :], strict=True):
            wanted = sum(region.contains(event) for region in regions)
            if self.watch.got[id] != wanted:
                raise AssertionError(f"{event} was delivered for {self.watch.got[id]} subscriptions of {wanted}")

    def _phi(self, roots: list[Generated]) -> dict[str, float]:
        """By the statistics, and by brute force over the events of the window, at the core broker nearest to each."""
        net, differences, seen = self.net, [], []
        links = net.links
        space = net.space
        past = self.events[: round(self.options.warm / EVERY)]
        columns = {f"x{axis}": np.array([event[f"x{axis}"] for event in past]) for axis in range(4)}
        every = space.encode_batch(columns)
        others = [(each, space.where(each.where)) for each in self.made]
        for root in roots:
            home = net.where[root.id]
            broker = net.network.nodes[home].broker
            own = next(region for each, region in others if each.id == root.id)
            wanted = own.contains_points(every)
            if not wanted.any():
                continue
            points = [column[wanted] for column in every]
            way = [home, *(to for _, to in path(links, home, "E") or [])]
            hops = next(at for at, name in enumerate(way) if name in CORE)
            beyond = _behind(links, way, hops)
            shared = np.zeros(int(wanted.sum()), bool)
            for each, region in others:
                if each.id != root.id and net.where[each.id] in beyond:
                    shared |= region.contains_points(points)
            real = float(shared.mean())
            id = f"{home}/at {home}/{root.id}"
            estimates = similarity(broker, id, hops, net.network.now)
            if estimates:
                seen.append(real)
                differences.append(abs(float(np.mean(list(estimates.values()))) - real))
        return {"mean": float(np.mean(seen)), "difference": float(np.mean(differences)), "most": max(differences)}


def _behind(links: list[tuple[str, str]], way: list[str], hops: int) -> set[str]:
    """The brokers whose subscriptions pass the broker so many hops along the way, or meet the way before."""
    behind = set(way[: hops + 1])
    closed = set(way[hops + 1 :])
    while True:
        more = {
            other
            for one, two in links
            for here, other in ((one, two), (two, one))
            if here in behind and other not in behind and other not in closed
        }
        if not more:
            return behind
        behind |= more


def _variant(experiment: Experiment, variant: str | None, queues: str, results: Any) -> None:
    results.put(experiment.run(variant, queues))


def compared(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Two at a time: time is simulated."""
    asked = [(options, cover, base) for cover in options.covers.split(",") for base in BASES]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        return [row for rows in pool.map(variants_of, *zip(*asked, strict=True)) for row in rows]


def variants_of(options: argparse.Namespace, cover: str, base: str) -> list[dict[str, Any]]:
    progress(f"{cover} {base}: loading")
    experiment, rows = Experiment(options, cover, base), []
    forked = multiprocessing.get_context("fork")
    for variant in BASES[base]:
        for queues in QUEUES if base == "retracting" and variant in EVENTS_FIRST else ("in order",):
            progress(f"{cover} {base}: {variant or 'nobody leaves'}, {queues}")
            results = forked.Queue()
            process = forked.Process(target=_variant, args=(experiment, variant, queues, results))
            process.start()
            rows.append({"cover": cover, "base": base, **results.get(timeout=3_600)})
            process.join()
    return rows


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Against retracting, and against the run of the same engine and queues in which nobody leaves."""
    found = []
    for calm in [row for row in rows if row["phi"]]:
        own = {
            row["variant"]: row
            for row in rows
            if (row["cover"], row["base"], row["queues"]) == (calm["cover"], calm["base"], calm["queues"])
        }
        loud, quiet = own["retracting"], own["nobody leaves"]
        found.append(
            {
                "cover": calm["cover"], "variant": calm["variant"], "queues": calm["queues"],
                "control E / retracting": calm["control E"] / loud["control E"],
                "carried E / retracting": calm["carried"] / loud["carried"],
                "floor, goal": "1/10, 1/20",
                "p99 during / nobody leaves": calm["p99 during"] / quiet["p99 during"],
                "p99 after / nobody leaves": calm["p99 after"] / quiet["p99 after"],
                "floor, goal ": "3, 1.5",
                "phi, mean": calm["phi"]["mean"], "difference": calm["phi"]["difference"],
                "most": calm["phi"]["most"],
            }
        )  # fmt: skip
    return found


def draw(rows: list[dict[str, Any]], cover: str) -> None:
    """The four parts of the paper's figure 9, side by side."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    own = {
        row["variant"]: row["series"]
        for row in rows
        if row["cover"] == cover and row["variant"] in POLICIES and row["queues"] == "in order"
    }
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for at, (variant, series) in enumerate(own.items()):
        for part, label in ((0, "delay"), (1, "queue")):
            times, values = zip(*series[label], strict=True)
            axes[0][part].plot(times, np.maximum(values, 1e-3 if part == 0 else 0.5), label=variant)
        places = np.arange(len(CORE)) + 0.16 * at
        axes[1][0].bar(places, [max(0.5, series["carried"][name]) for name in CORE], 0.16, label=variant)
        axes[1][1].bar(places, [series["table"][name] for name in CORE], 0.16, label=variant)
    titles = ("delay of events, by second of publication (s)", "longest queue of a core broker (messages)",
              "subscriptions that came to core brokers", "subscriptions held by core brokers in the end")  # fmt: skip
    for axis, title in zip(axes.flat, titles, strict=True):
        axis.set_title(title, fontsize=9)
        axis.legend(fontsize=8)
    for axis in (axes[0][0], axes[0][1], axes[1][0]):
        axis.set_yscale("log")
    axes[0][0].set_xlim(-DURING, DURING + AFTER)
    axes[0][1].set_xlim(-DURING, 1_000)
    for axis in axes[0]:
        axis.set_xlabel("seconds from the first unsubscription")
    for axis in axes[1]:
        axis.set_xticks(np.arange(len(CORE)) + 0.32, list(CORE))
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=100)


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="What happens when wide subscriptions leave, by policy.")
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the subscriptions and of their degree")
    parser.add_argument("--unsubscriptions", type=int, default=20)
    parser.add_argument("--theta", type=float, default=0.9)
    parser.add_argument("--warm", type=float, default=600.0, help="seconds of events before the first one leaves")
    parser.add_argument("--covers", default="pairwise,exact")
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    rows = compared(options)
    (RESULTS / "calm_series.json").write_text(json.dumps(rows))
    report("calm", [{key: value for key, value in row.items() if key not in ("phi", "series")} for row in rows])
    report("calm_ratios", judged(rows))
    draw(rows, options.covers.split(",")[0])


if __name__ == "__main__":
    main()
