"""Resynchronisation: a peer says by a digest what it holds, and is sent what differs.

Each side of a link does so for what it was sent. The neighbour answers in pages, each of which lists what holds when it
is sent; the last one is `Synced`. A page adds and widens only: an id that has another clause by now is held under both
until `Synced`, and what is gone stays until then. So what a cut leaves behind between two pages is wide enough, too.

    the neighbour ── Digest ─▶
                  ◀── Extend, Page ──      as much as there is room for in a message
                  ── Accepted ─▶           it is on disk: the next one
                  ◀── Synced ──            in the buckets that differed nothing else is held from now on

A neighbour that knows no pages gets all in `Synced`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import partial

from thatch.broker.forwarding import Forwarding
from thatch.broker.growth import Growth
from thatch.broker.handling import Handling
from thatch.broker.intake import Intake
from thatch.broker.link import Link
from thatch.broker.link_states import LinkAction, LinkInput
from thatch.broker.pages import CHARACTERS_MAX, Room, SentPages
from thatch.broker.tables import Entry
from thatch.errors import CallerError, PeerError
from thatch.protocol.digest import bucket_of, differing_buckets, digest, digest_size, hashed
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, alias, overlay_id
from thatch.protocol.messages import Accepted, Digest, Page, Refused, Synced
from thatch.protocol.versions import KEYED_DIGESTS, PAGES


class Resync:
    def __init__(
        self,
        name: str,
        forwarding: Forwarding,
        growth: Growth,
        intake: Intake,
        handling: Handling,
        page_characters: int = CHARACTERS_MAX,
    ) -> None:
        """`name`: of the broker. `page_characters`: of ids and clauses in a page, unless it has one entry."""
        self.page_characters = page_characters
        self._name, self._received, self._links = name, forwarding.received, forwarding.links
        self._growth, self._intake, self._handling = growth, intake, handling

    def send_digest(self, link: Link) -> None:
        """Of what came over a link."""
        held = self._received.subscriptions.of_link(link.name)
        subscriptions = {id: entry for id, entry in held.items() if not link.pending.is_placeholder(id)}
        advertisements = self._received.advertisements.of_link(link.name)
        size = digest_size(len(subscriptions) + len(advertisements))
        key = link.digest_key if link.version >= KEYED_DIGESTS else b""
        wanted, advertised = (
            digest(_as_the_peer_knows_them(each), size, key) for each in (subscriptions, advertisements)
        )
        hashes, counts = (wanted.hashes, advertised.hashes), (wanted.counts, advertised.counts)
        self._handling.send(link.name, Digest(link.next_seq(), size, *hashes, key, *counts))

    def answer(self, message: Digest, name: str) -> None:
        """Send a neighbour what it does not hold, and what to hold no longer."""
        link = self._links[name]
        if link.is_client or link.action(LinkInput.DIGEST) is not LinkAction.LIST:
            raise PeerError(f"{name!r} sent a digest that was not asked for")
        self._handling.send(name, *self._growth.messages_for(link))
        for outbound in link.outbound:
            outbound.skip_updates()  # all of it is in what is forwarded
        forwarded = [outbound.forwarded() for outbound in link.outbound]
        buckets = [
            differing_buckets(_plain(wheres), theirs, message.size, message.key)
            for wheres, theirs in zip(forwarded, hashed(message), strict=True)
        ]
        pages = SentPages(message.size, *buckets)
        link.begin_listing(pages)
        for (table, outbound), wheres in zip(link.outbound.items(), forwarded, strict=True):
            outbound.pages.begin(wheres, partial(pages.differs, table))
        self._send_page(link, pages)

    def accepted(self, message: Accepted, name: str) -> None:
        """A neighbour has a page on disk, and is sent the next one."""
        link = self._links[name]
        if link.sent_pages is None or link.action(LinkInput.ACCEPTED) is not LinkAction.GO_ON:
            raise PeerError(f"{name!r} accepts a page that it was not sent")
        if link.sent_pages.may_follow(message.seq):
            self._send_page(link, link.sent_pages)

    def _send_page(self, link: Link, pages: SentPages) -> None:
        """What holds now, of what is not listed yet; the last page ends it."""
        room = Room(self.page_characters) if link.version >= PAGES else Room(sys.maxsize, sys.maxsize)
        subscriptions, advertisements = (table.take_page(room) for table in link.outbound)
        wanted = pages.listing(SUBSCRIPTIONS, subscriptions)
        advertised = pages.listing(ADVERTISEMENTS, advertisements)
        if wanted is None or advertised is None or not all(table.pages.is_empty for table in link.outbound):
            seq = link.next_seq()
            pages.note(seq)
            self._handling.send(link.name, Page(seq, subscriptions, advertisements))
        else:
            self._handling.send(link.name, Synced(link.sync(), pages.size, wanted, advertised))

    def take_page(self, message: Page, name: str) -> None:
        """Hold what a neighbour lists, and beside it what it had under the same ids."""
        link = self._links[name]
        if link.is_client or link.received_pages.is_whole:
            raise PeerError(f"{name!r} sent a page that was not asked for")
        for table, wheres in ((SUBSCRIPTIONS, message.subscriptions), (ADVERTISEMENTS, message.advertisements)):
            held = self._received.table(table).of_link(name)
            for id, where in wheres.items():
                before, stays = held.get(id), alias(id, f"{name}/")
                if before is not None and before.where != where:
                    if stays not in held:  # else it is from a session that was cut before: what had settled then
                        self._intake.hold(table, link, stays, before.where, before.expires)
                    link.received_pages.note_widened(table, stays)
                self._intake.hold(table, link, id, where, None)
                link.received_pages.note(table, id)
        self._handling.send(name, Accepted(message.seq))

    def apply(self, message: Synced, name: str) -> None:
        """Hold what a peer lists or has listed in pages, and nothing else in the buckets that it lists."""
        if message.size < 1:
            raise PeerError(f"a listing has at least 1 bucket, not {message.size}")
        link = self._links[name]
        for table, buckets in ((SUBSCRIPTIONS, message.subscriptions), (ADVERTISEMENTS, message.advertisements)):
            listed = {id: held for bucket in buckets.values() for id, held in bucket.items()}
            for id, (where, expires) in listed.items():
                try:
                    self._intake.hold(table, link, id, where, expires)
                except CallerError as error:
                    if not link.is_client:
                        raise
                    self._handling.reject(name, Refused(message.seq, id, str(error), table, error.code))
                    if id:
                        self._intake.remove(table, name, overlay_id(self._name, name, id))  # the client forgets it too
            for entry in list(self._received.table(table).of_link(name).values()) if buckets else ():
                id = entry.peer_id
                if id in listed or link.received_pages.has(table, id):
                    continue
                if bucket_of(id, message.size) in buckets and not link.pending.is_placeholder(id):
                    self._intake.remove(table, name, entry.id)
        if link.is_client:
            self._handling.send(name, Accepted(message.seq))
            return
        for table, stays in link.received_pages.end().items():
            for id in stays:
                self._intake.remove(table, name, id)


def _plain(wheres: Mapping[str, str]) -> Iterable[tuple[str, str, None]]:
    """Ids and clauses that a neighbour should hold: it knows no leases."""
    return ((id, where, None) for id, where in wheres.items())


def _as_the_peer_knows_them(entries: Mapping[str, Entry]) -> list[tuple[str, str, float | None]]:
    """Ids, clauses and leases, under the ids that the peer uses."""
    return [(entry.peer_id, entry.where, entry.expires) for entry in entries.values()]
