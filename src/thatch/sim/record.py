"""What happens in a simulated overlay, in simulated time, as one long table: time, broker, tier, measure, value.

queue, table, sent            of a broker, at each sample
events in, false positives    events that came from neighbours so far; those that no subscription there or beyond wants
handled Subscribe, …          messages of a kind handled so far
delay                         seconds from publication to delivery, at the subscriber's broker
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from thatch.protocol.messages import Deliver, Publish
from thatch.sim.network import Network, Observer

SCHEMA = pa.schema(
    [("time", pa.float64()), ("broker", pa.string()), ("tier", pa.string()), ("measure", pa.string()),
     ("value", pa.float64())]
)  # fmt: skip


class Recorder(Observer):
    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.rows: list[tuple[float, str, str, str, float]] = []
        self.delivered_count = self.published_count = 0
        self.tiers: Mapping[str, str] = {}
        self._published: dict[str, float] = {}
        self._network: Network | None = None

    def start(self, network: Network, tiers: Mapping[str, str]) -> None:
        """Sample now, and then every `interval` while something is going on."""
        self._network, self.tiers = network, tiers
        self._sample()

    def published(self, client: str, broker: str, event: Publish, now: float) -> None:
        self.published_count += 1
        self._published[event.id] = now

    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None:
        self.delivered_count += 1
        self._add(now, broker, "delay", now - self._published[delivered.event.id])

    def _add(self, now: float, broker: str, measure: str, value: float) -> None:
        self.rows.append((now, broker, self.tiers.get(broker, ""), measure, value))

    def _sample(self) -> None:
        assert self._network is not None
        now = self._network.now
        for name, node in self._network.nodes.items():
            links = [link for link in node.broker.links.values() if not link.is_client]
            self._add(now, name, "queue", node.waiting)
            self._add(now, name, "table", node.broker.table_size())
            self._add(now, name, "sent", sum(len(link.outbound.subscriptions.sent) for link in links))
            self._add(now, name, "events in", sum(link.counts.events_in for link in links))
            self._add(now, name, "false positives", sum(link.counts.false_positives for link in links))
            for kind, count in node.handled.items():
                self._add(now, name, f"handled {kind}", count)
        if self._network.is_busy:
            self._network.at(now + self.interval, self._sample)

    def table(self) -> pa.Table:
        columns = zip(*self.rows, strict=True) if self.rows else [[] for _ in SCHEMA]
        return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)],
                        schema=SCHEMA)  # fmt: skip

    def write(self, path: Path) -> None:
        pq.write_table(self.table(), path)
