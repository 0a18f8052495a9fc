"""Resynchronisation: a peer says by a digest what it holds, and is sent what differs.

Each side of a link does so for what it was sent. The neighbour's answer is one message, `Synced`: applied one by one, a
narrowed subscription could come before one that it used to cover.
"""

from __future__ import annotations

from collections.abc import Mapping

from thatch.broker.forwarding import Forwarding
from thatch.broker.growth import Growth
from thatch.broker.handling import Handling
from thatch.broker.intake import Intake
from thatch.broker.link import Link
from thatch.broker.link_states import LinkAction, LinkInput
from thatch.broker.tables import Entry
from thatch.errors import CallerError, PeerError
from thatch.protocol.digest import bucket_of, differing, digest, digest_size, hashed
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, overlay_id
from thatch.protocol.messages import Accepted, Digest, Extend, Refused, Synced
from thatch.protocol.versions import KEYED_DIGESTS


class Resync:
    def __init__(self, name: str, forwarding: Forwarding, growth: Growth, intake: Intake, handling: Handling) -> None:
        """`name`: of the broker."""
        self._name, self._received, self._links = name, forwarding.received, forwarding.links
        self._growth, self._intake, self._handling = growth, intake, handling

    def send_digest(self, link: Link) -> None:
        """Of what came over a link."""
        subscriptions = self._received.subscriptions.of_link(link.name)
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
        if link.is_client or link.action(LinkInput.DIGEST) is not LinkAction.SYNC:
            raise PeerError(f"{name!r} sent a digest that was not asked for")
        self._handling.send(name, Extend(link.next_seq(), self._growth.text, self._growth.is_open))
        listings = [
            differing({id: (where, None) for id, where in table.forwarded().items()}, theirs, message.size, message.key)
            for table, theirs in zip(link.outbound, hashed(message), strict=True)
        ]
        self._handling.send(name, Synced(link.sync(), message.size, *listings))

    def apply(self, message: Synced, name: str) -> None:
        """Hold what a peer lists, and nothing else in the buckets that it lists."""
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
                if entry.peer_id not in listed and bucket_of(entry.peer_id, message.size) in buckets:
                    self._intake.remove(table, name, entry.id)
        if link.is_client:
            self._handling.send(name, Accepted(message.seq))


def _as_the_peer_knows_them(entries: Mapping[str, Entry]) -> list[tuple[str, str, float | None]]:
    """Ids, clauses and leases, under the ids that the peer uses."""
    return [(entry.peer_id, entry.where, entry.expires) for entry in entries.values()]
