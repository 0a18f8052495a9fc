"""Keys of peers, and records of their links, in short."""

from __future__ import annotations

from thatch.protocol.records import CLIENT, DURABLE_QUEUE, NEIGHBOUR, LinkRecord, PeerKey


def client(name: str) -> PeerKey:
    return PeerKey(CLIENT, name)


def neighbour(name: str) -> PeerKey:
    return PeerKey(NEIGHBOUR, name)


def durable_queue(name: str) -> PeerKey:
    return PeerKey(DURABLE_QUEUE, name)


def links(*peers: PeerKey) -> list[LinkRecord]:
    """As a broker records them at first."""
    return [LinkRecord(peer, peer.kind == DURABLE_QUEUE) for peer in peers]
