"""Versions of the protocol, what a peer says that it can, and the limits that neighbours must respect.

Two peers use the highest version that both speak. Version 2 is rigid: its readers refuse every field and every kind of
message that they do not know. From version 3 on readers ignore fields that they do not know at the end of a message,
and skip kinds that may be ignored. Which of both a peer is, the transport says before the first message
(`SUBPROTOCOL`), so that a rigid reader never gets more than it reads.

Limits are constants of a version: what one neighbour may send, the other must take. Settings lower them for clients
only. A clause that a neighbour could not take is sent as something wider (broker/fitting.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from thatch.errors import PeerError

VERSION_MIN, VERSION_MAX = 2, 5
RIGID = 2  # the last version whose readers refuse what they do not know
GROWTH_STEPS = 5  # the first version that counts the steps by which a space grows
KEYED_DIGESTS = 4  # the first version whose digests have a key
FLUSHES = 5  # the first version in which a `Flush` has an answer of its own
PAGES = 5  # the first version that is sent what differs in pages
EXCEPTIONS = 5  # the first version that settles except behind brokers that are away, and in which `Durable` settles
SUBPROTOCOL = "thatch"  # of the WebSocket: both sides read what has grown

# Capabilities: names in the map of a Hello. One that is not known is ignored.
DIGEST = "digest"  # how a client compares digests; by any other method than ours, "none" say, it cannot
BLAKE2B = "blake2b"
NAMED_KINDS = "kinds"  # tags that it understands beyond those of its version
ROUTING = "routing"  # between nodes: how subscriptions travel, on which both sides of a link must agree
STEP = "step"  # between nodes: how many steps of growing its space have opened; 0: it takes another's space
LIFE = "life"  # of the store of a node: a client acknowledges events of this session with it


class ProtocolLimits(msgspec.Struct, frozen=True):
    """What every peer of a version takes."""

    clause_characters_max: int
    terms_max: int  # of a clause
    event_bytes_max: int  # of a `Publish`
    client_frame_bytes_max: int  # of a frame from a client
    frame_bytes_max: int  # of any other frame


_OF_2 = ProtocolLimits(
    clause_characters_max=4 * 2**20,
    terms_max=1_024,
    event_bytes_max=2**20,
    client_frame_bytes_max=4 * 2**20,
    frame_bytes_max=64 * 2**20,
)
LIMITS: Mapping[int, ProtocolLimits] = dict.fromkeys(range(VERSION_MIN, VERSION_MAX + 1), _OF_2)
OWN_LIMITS = LIMITS[VERSION_MAX]  # of the clauses that are compiled here


class Announced(msgspec.Struct, frozen=True):
    """What a peer can: what its Hello says, as far as it is known here."""

    version: int  # the highest that both speak
    hashes: bool = True  # compares digests
    kinds: frozenset[str] = frozenset()


def agreed(name: str, lowest: int, highest: int, capabilities: Mapping[str, Any], known: frozenset[str]) -> Announced:
    """What a peer and this side have in common. `known`: tags that this side may send if they are announced."""
    highest = max(lowest, highest)
    version = min(highest, VERSION_MAX)
    if version < max(lowest, VERSION_MIN):
        theirs = f"version {lowest}" if lowest == highest else f"versions {lowest} to {highest}"
        raise PeerError(
            f"{name!r} speaks {theirs} of the protocol, this side {VERSION_MIN} to {VERSION_MAX}", code="version"
        )
    listed = capabilities.get(NAMED_KINDS)
    kinds = known.intersection(each for each in listed if isinstance(each, str)) if isinstance(listed, list) else ()
    return Announced(version, capabilities.get(DIGEST, BLAKE2B) == BLAKE2B, frozenset(kinds))
