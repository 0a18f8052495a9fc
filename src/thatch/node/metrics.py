"""What Prometheus reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from thatch.broker.link import Counts
from thatch.delivery.driver import Driver
from thatch.delivery.stream import Stream
from thatch.node.host import Host
from thatch.protocol.records import NEIGHBOUR

Sample = tuple[dict[str, str], float]

LINK_COUNTS: tuple[tuple[str, str, Callable[[Counts], int]], ...] = (
    ("events_in", "Events from a neighbour.", lambda counts: counts.events_in),
    ("events_out", "Events to a neighbour.", lambda counts: counts.events_out),
    ("false_positives", "Events from a neighbour that no subscription wanted.", lambda counts: counts.false_positives),
    ("entries_sent", "Subscriptions and advertisements sent to a neighbour.", lambda counts: counts.entries_sent),
    ("entries_withdrawn", "Subscriptions and advertisements withdrawn.", lambda counts: counts.entries_withdrawn),
)


def metrics(node: Host) -> str:
    lines = []
    for name, kind, about, samples in _families(node):
        lines += [f"# HELP thatch_{name} {about}", f"# TYPE thatch_{name} {kind}"]
        for labels, value in samples:
            written = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"thatch_{name}{{{written}}} {value:g}" if written else f"thatch_{name} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _families(node: Host) -> Iterator[tuple[str, str, str, list[Sample]]]:
    broker, store = node.driver.broker, node.store
    neighbours = [link for link in broker.links.values() if not link.is_client]
    clients = [link for link in broker.links.values() if link.is_client]
    yield "up_seconds", "gauge", "Since the start.", [({}, time.monotonic() - node.started_at)]
    yield "subscriptions", "gauge", "Subscriptions received.", [({}, broker.table_size())]
    yield "clients", "gauge", "Clients, with those that are away.", [({}, len(clients))]
    yield "connections", "gauge", "Connections.", [({}, node.connection_count)]
    total = node.totals()
    yield "events_received_total", "counter", "Events from clients and neighbours.", [({}, total["events_in"])]
    yield "events_sent_total", "counter", "Events to clients and neighbours.", [({}, total["events_out"])]
    yield "events_dropped_total", "counter", "Events dropped because a client was slow.", [({}, node.dropped_count)]
    yield "events_refused_total", "counter", "Events refused: the disk was full.", [({}, node.driver.refused_for_space)]
    yield "messages_skipped_total", "counter", "Messages of kinds not known here.", [({}, node.skipped_count)]
    yield (
        "link_up",
        "gauge",
        "Whether a neighbour is connected and synced.",
        [({"link": each.name}, float(each.is_synced)) for each in neighbours],
    )
    for name, about, count in LINK_COUNTS:
        samples: list[Sample] = [({"link": each.name}, count(each.counts)) for each in neighbours]
        yield f"link_{name}_total", "counter", about, samples
    yield from _families_of_streams(node.driver.streams)
    queues = list(node.queues)
    yield (
        "queue_kept_bytes",
        "gauge",
        "Events on disk for a durable subscription.",
        [({"queue": each.name}, each.stream.on_disk.bytes) for each in queues],
    )
    yield (
        "queue_kept_events",
        "gauge",
        "Events on disk for a durable subscription, to within some.",
        [({"queue": each.name}, each.stream.on_disk.count) for each in queues],
    )
    yield (
        "queue_lost_total",
        "counter",
        "Events lost to the limit of a durable subscription.",
        [({"queue": each.name}, each.stream.lost) for each in queues],
    )
    yield from _families_of_gaps(node.driver)
    yield "store_full", "gauge", "Whether the disk is full.", [({}, float(store.is_full))]
    yield "store_commits_total", "counter", "Transactions.", [({}, store.commits)]
    yield "store_failures_total", "counter", "Transactions that failed and are tried again.", [({}, store.failures)]


def _families_of_streams(streams: Mapping[str, Stream]) -> Iterator[tuple[str, str, str, list[Sample]]]:
    yield (
        "link_waiting_bytes",
        "gauge",
        "Events in memory for a neighbour.",
        [({"link": name}, stream.waiting_bytes) for name, stream in streams.items()],
    )
    yield (
        "link_kept_bytes",
        "gauge",
        "Events on disk for a neighbour.",
        [({"link": name}, stream.on_disk.bytes) for name, stream in streams.items()],
    )
    yield (
        "link_lost_total",
        "counter",
        "Events lost to the limits of a neighbour.",
        [({"link": name}, stream.lost) for name, stream in streams.items()],
    )
    yield (
        "link_suspected_lost_total",
        "counter",
        "Of the events lost to the limits of a neighbour, those that nobody had asked for.",
        [({"link": name}, stream.suspected_lost) for name, stream in streams.items()],
    )


def _rollbacks(driver: Driver) -> int:
    """How often this store went back to the past, and those of neighbours, as far as that is still known."""
    own = {each.since for each in driver.history.rollbacks_after("")}
    others = {(each.peer.name, each.until) for each in driver.gaps if each.peer.kind == NEIGHBOUR}
    ours = {(each.peer.name, each.until) for each in driver.gaps if each.since in own}
    return len(driver.history.rollbacks_after("")) + len(others - ours)


def _families_of_gaps(driver: Driver) -> Iterator[tuple[str, str, str, list[Sample]]]:
    yield (
        "rollbacks_total",
        "counter",
        "Stores that went back to the past: this one, and those of neighbours.",
        [({}, _rollbacks(driver))],
    )
    yield (
        "gaps_dropped_total",
        "counter",
        "Announced intervals that are no longer kept: later ones took their place.",
        [({}, driver.gaps_dropped)],
    )
    spans: dict[tuple[str, str], float] = {}
    for gap in driver.gaps:
        place = gap.peer.name, gap.side
        spans[place] = spans.get(place, 0.0) + gap.until - gap.since
    yield (
        "gap_seconds",
        "gauge",
        "How long events were acknowledged that may be missing since a store went back to the past.",
        [({"peer": peer, "side": side}, seconds) for (peer, side), seconds in spans.items()],
    )
