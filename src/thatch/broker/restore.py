"""A broker as it was: from all its records in order, and from what it had worked out (image.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from thatch.broker.forwarding import Forwarding, note_advertised
from thatch.broker.growth import Growth
from thatch.broker.image import Decision, Known, read_image, write_image
from thatch.broker.intake import Intake
from thatch.broker.own_space import ReadSpace
from thatch.broker.sessions import Sessions
from thatch.broker.tables import Entry
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, client_id
from thatch.protocol.records import (
    AdvertisementRecord,
    Drop,
    EntryRecord,
    LinkRecord,
    PreservedRecord,
    Record,
    RecordChange,
    RecordKey,
    SpaceRecord,
    SubscriptionRecord,
)
from thatch.space.space import Space


class LiveRecords:
    """Of all records that were written, those that hold."""

    def __init__(self, records: Iterable[RecordChange], space: Space, read_space: ReadSpace) -> None:
        """`space`: as it was at first."""
        live: dict[RecordKey, Record] = {}
        for record in records:
            key = record.key
            live.pop(key, None)  # the new one takes the last place
            if not isinstance(record, Drop):
                live[key] = record
        self._links, self._preserved = list[LinkRecord](), list[PreservedRecord]()
        self._entries: list[EntryRecord] = []
        spaces: dict[bool, SpaceRecord] = {}  # by whether it has opened
        for record in live.values():
            if isinstance(record, SubscriptionRecord | AdvertisementRecord):
                self._entries.append(record)
            elif isinstance(record, LinkRecord):
                self._links.append(record)
            elif isinstance(record, PreservedRecord):
                self._preserved.append(record)
            else:
                spaces[record.is_open] = record
        self._grown, self._opened = spaces.get(False), spaces.get(True)
        self.space = space if self._grown is None else read_space(self._grown.space)
        self._has_grown = self.space != space
        opened = space if self._opened is None else read_space(self._opened.space)
        self._open_space = self.space if opened == self.space else opened

    def known(self, image: bytes | None, decided: Mapping[str, Decision] | None) -> Known:
        """What need not be worked out; nothing that is of a smaller space."""
        known = Known() if image is None else read_image(image, self.space)
        return known if decided is None or self._has_grown else replace(known, decided=decided)

    def load(self, growth: Growth, sessions: Sessions, intake: Intake, forwarding: Forwarding, known: Known) -> None:
        """Into the parts of a new broker."""
        growth.restore(self._grown, self._opened, self._open_space)
        for record in self._links:
            sessions.add_link(record.peer).set_durable(record.is_durable)
        self._preserve(growth, forwarding)
        found: dict[str, list[Entry]] = {SUBSCRIPTIONS: [], ADVERTISEMENTS: []}
        for entry in self._entries:
            region = known.regions.get(entry.where)
            if region is None:
                region = growth.region(entry.where)
            link = forwarding.links[entry.peer.name]
            table = SUBSCRIPTIONS if isinstance(entry, SubscriptionRecord) else ADVERTISEMENTS
            peer_id = client_id(entry.id) if link.is_client else entry.id
            into = found[table]
            into.append(Entry(len(into), link.name, entry.id, peer_id, entry.where, region, entry.expires))
            intake.note_expiry(table, link.name, entry.id, entry.expires)
        forwarding.load(found, known)
        for link in forwarding.brokers():
            for id in forwarding.received.subscriptions.of_link(link.name):
                if id.startswith(link.pending.prefix):
                    link.pending.put_placeholder(id.removeprefix(link.pending.prefix))
                    link.set_durable(link.says_durable)
            forwarding.drain_updates(link)  # nothing to send
            link.mark_unsent()  # and nothing of it has settled before the link is synced
            note_advertised(link, link.outbound.advertisements.wheres)

    def _preserve(self, growth: Growth, forwarding: Forwarding) -> None:
        for record in self._preserved:
            if record.peer.name in forwarding.links:
                outbound = forwarding.links[record.peer.name].outbound.subscriptions
                outbound.preserve_again(record.id, record.where, growth.region(record.where), record.hops_left)


def image_of(space: Space, forwarding: Forwarding) -> bytes:
    """What was worked out so far, for the next start (image.py)."""
    regions = {entry.where: entry.region for table in forwarding.received for entry in table}
    decisions = {
        link.name: {name: table.decisions() for name, table in link.outbound.items()} for link in forwarding.brokers()
    }
    return write_image(space, regions, decisions)
