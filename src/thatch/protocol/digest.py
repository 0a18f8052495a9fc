"""Digests: what one side of a link holds, hashed into buckets, so that the other side can send what differs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from thatch.errors import PeerError
from thatch.protocol.messages import Listing

BUCKET = 16  # entries that share a hash in a digest


def digest(held: Iterable[tuple[str, str, float | None]], size: int) -> tuple[int, ...]:
    """Ids, clauses and leases in `size` buckets, each an exclusive or of 64-bit hashes: equal tables, equal digests."""
    buckets = [0] * size
    for id, where, expires in held:
        buckets[bucket_of(id, size)] ^= _hash(f"{len(id)}:{id}{expires!r}:{where}")
    return tuple(buckets)


def differing(held: Mapping[str, tuple[str, float | None]], theirs: tuple[int, ...], size: int) -> Listing:
    """The buckets of a digest in which a neighbour holds something else, and what it is to hold there."""
    if size < 1 or len(theirs) != size:
        raise PeerError(f"a digest says that it has {size} buckets, and has {len(theirs)}")
    mine = digest([(id, *each) for id, each in held.items()], size)
    listing: Listing = {at: {} for at in range(size) if mine[at] != theirs[at]}
    for id, each in held.items() if listing else ():
        bucket = listing.get(bucket_of(id, size))
        if bucket is not None:
            bucket[id] = each
    return listing


def bucket_of(id: str, size: int) -> int:
    return _hash(id) % size


def digest_size(entries: int) -> int:
    return max(1, entries // BUCKET)


def _hash(text: str) -> int:
    """The same in every process, unlike Python's."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
