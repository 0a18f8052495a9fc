"""Digests: what one side of a link holds, hashed into buckets, so that the other side can send what differs.

Clients choose ids and clauses. So the side that sends a digest hashes with a key, which is drawn for each session:
nobody can choose entries whose hashes cancel out, which the other side would take to be held where they are not. Peers
before version 4 of the protocol hash without a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from thatch.errors import PeerError
from thatch.protocol.messages import Digest, Listing

BUCKET = 16  # entries that share a hash in a digest,
BUCKETS_MAX = 2**16  # or more: a digest fits into a message, however much there is
KEY_BYTES = 16


class Hashed(NamedTuple):
    """A table in buckets. Those of equal tables are equal."""

    hashes: tuple[int, ...]
    counts: tuple[int, ...] = ()  # the entries of each bucket; not known without a key


def digest(held: Iterable[tuple[str, str, float | None]], size: int, key: bytes = b"") -> Hashed:
    """Ids, clauses and leases in `size` buckets. The hash of a bucket is the sum of the 64-bit hashes of its entries,
    and without a key their exclusive or."""
    hashes, counts = [0] * size, [0] * size
    for id, where, expires in held:
        bucket, hash = bucket_of(id, size), _hash(f"{len(id)}:{id}{expires!r}:{where}", key)
        hashes[bucket] = (hashes[bucket] + hash) % 2**64 if key else hashes[bucket] ^ hash
        counts[bucket] += 1
    return Hashed(tuple(hashes), tuple(counts) if key else ())


def hashed(message: Digest) -> tuple[Hashed, Hashed]:
    """What a peer holds: its subscriptions, and its advertisements."""
    return (
        Hashed(message.subscriptions, message.subscription_counts),
        Hashed(message.advertisements, message.advertisement_counts),
    )


def differing_buckets(
    held: Iterable[tuple[str, str, float | None]], theirs: Hashed, size: int, key: bytes = b""
) -> dict[int, None]:
    """The buckets of a digest in which a neighbour holds something else."""
    for buckets in theirs if key else (theirs.hashes,):
        if size < 1 or len(buckets) != size:
            raise PeerError(f"a digest says that it has {size} buckets, and has {len(buckets)}")
    mine = digest(held, size, key)
    return {
        at: None
        for at in range(size)
        if mine.hashes[at] != theirs.hashes[at] or (key and mine.counts[at] != theirs.counts[at])
    }


def differing(held: Mapping[str, tuple[str, float | None]], theirs: Hashed, size: int, key: bytes = b"") -> Listing:
    """The buckets of a digest in which a neighbour holds something else, and what it is to hold there."""
    entries = ((id, *each) for id, each in held.items())
    listing: Listing = {at: {} for at in differing_buckets(entries, theirs, size, key)}
    for id, each in held.items() if listing else ():
        bucket = listing.get(bucket_of(id, size))
        if bucket is not None:
            bucket[id] = each
    return listing


def bucket_of(id: str, size: int) -> int:
    return _hash(id) % size


def digest_size(entries: int) -> int:
    return min(max(1, entries // BUCKET), BUCKETS_MAX)


def _hash(text: str, key: bytes = b"") -> int:
    """The same in every process, unlike Python's."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=key).digest(), "little")
