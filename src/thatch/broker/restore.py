"""A broker as it was: from all its records in order, and from what it had worked out (image.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from thatch.broker.forwarding import Forwarding
from thatch.broker.growth import Growth, ReadSpace
from thatch.broker.handling import LEAVING, PRESERVED
from thatch.broker.image import Decision, Known, read_image, write_image
from thatch.broker.intake import Intake
from thatch.broker.sessions import Sessions
from thatch.broker.tables import Entry
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, client_id
from thatch.protocol.messages import Put, Record
from thatch.space.space import Space


class LiveRecords:
    """Of all records that were written, those that hold."""

    def __init__(self, records: Iterable[Record], space: Space, read_space: ReadSpace) -> None:
        """`space`: as it was at first."""
        puts: dict[tuple[str, str, str], Put] = {}
        for record in records:
            key = record.table, record.link, record.id
            puts.pop(key, None)
            if isinstance(record, Put):
                puts[key] = record
        grown, opened = puts.pop(("space", "", "grown"), None), puts.pop(("space", "", "opened"), None)
        self.space = space if grown is None else read_space(grown.where)
        self._has_grown = self.space != space
        self._opened: Space | None = None  # if it is another one
        if grown is not None and (opened is None or opened.where != grown.where):
            self._opened = space if opened is None else read_space(opened.where)
        self._puts = puts

    def known(self, image: bytes | None, decided: Mapping[str, Decision] | None) -> Known:
        """What need not be worked out; nothing that is of a smaller space."""
        known = Known() if image is None else read_image(image, self.space)
        return known if decided is None or self._has_grown else replace(known, decided=decided)

    def load(self, growth: Growth, sessions: Sessions, intake: Intake, forwarding: Forwarding, known: Known) -> None:
        """Into the parts of a new broker."""
        if self._opened is not None:
            growth.restore(self._opened)
        for put in self._puts.values():
            if put.table == "links":
                kind, _, durable = put.where.partition(" ")
                sessions.add_link(put.id, kind == "client", bool(durable))
        self._preserve(growth, forwarding)
        found: dict[str, list[Entry]] = {SUBSCRIPTIONS: [], ADVERTISEMENTS: []}
        for put in self._puts.values():
            if put.table not in found:
                continue
            region = known.regions.get(put.where)
            if region is None:
                region = growth.region(put.where)
            peer_id = client_id(put.id) if forwarding.links[put.link].is_client else put.id
            into = found[put.table]
            into.append(Entry(len(into), put.link, put.id, peer_id, put.where, region, put.expires))
            intake.note_expiry(put.table, put.link, put.id, put.expires)
        forwarding.load(found, known)
        for link in forwarding.brokers():
            forwarding.drain_updates(link)  # nothing to send
            link.mark_unsent()  # and nothing of it has settled before the link is synced

    def _preserve(self, growth: Growth, forwarding: Forwarding) -> None:
        for put in self._puts.values():
            if put.table == PRESERVED and put.link in forwarding.links:
                leaving = self._puts.get((LEAVING, put.link, put.id))
                hops_left = {} if leaving is None else json.loads(leaving.where)
                outbound = forwarding.links[put.link].outbound.subscriptions
                outbound.preserve_again(put.id, put.where, growth.region(put.where), hops_left)


def image_of(space: Space, forwarding: Forwarding) -> bytes:
    """What was worked out so far, for the next start (image.py)."""
    regions = {entry.where: entry.region for table in forwarding.received for entry in table}
    decisions = {
        link.name: {name: table.decisions() for name, table in link.outbound.items()} for link in forwarding.brokers()
    }
    return write_image(space, regions, decisions)
