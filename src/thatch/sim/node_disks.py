"""What the disks of whole nodes hold: for durable subscriptions, on the way to each, and of one another's stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from thatch.delivery.history import KNOWN, History
from thatch.delivery.journal import NeighbourRow
from thatch.protocol.records import DURABLE_QUEUE, NEIGHBOUR, PeerKey
from thatch.protocol.wire import Gap
from thatch.sim.node_oracle import DurableInterest
from thatch.sim.node_process import Machine


def places(way: list[str], keep: DurableInterest) -> Iterator[tuple[str, PeerKey]]:
    """On the way to a durable subscription: each broker, and what it keeps events for."""
    peers = [PeerKey(NEIGHBOUR, name) for name in way[1:]]
    return zip(way, [*peers, PeerKey(DURABLE_QUEUE, keep.name)], strict=True)


def is_on_disk(
    machines: Sequence[Machine], machine: Machine, event: str, way: list[str], keep: DurableInterest
) -> bool:
    """Whether an event is on the disk of a machine, or of one further on its way."""
    for name, peer in places(way, keep):
        disks = [each.disk for each in machines if each.name == name]
        if any(each.holds(peer, event) for each in ([machine.disk] if name == machine.name else disks)):
            return True
    return False


def gaps_on_disk(machines: Sequence[Machine], way: list[str], keep: DurableInterest) -> list[Gap]:
    """What limits have cost a durable subscription, and it is going to be told."""
    found = []
    for name, peer in places(way, keep):
        for machine in machines:
            found += machine.disk.gap_entries(peer) if machine.name == name else []
    return found


def is_behind(machines: Sequence[Machine], machine: Machine) -> bool:
    """Whether a neighbour knows more of a store than it knows itself. Without a mark of a backup, and with the life in
    the file beside it among its own (no restart since then), nothing else can tell that it is an old copy. Nor can a
    neighbour that, as far as the copy knows, has not answered since it went back to the past before."""
    history = History(machine.disk.lives.values())
    lives = {row.id for row in machine.disk.lives.values()}
    for each in machines:
        known = machine.disk.neighbours.get(each.name)
        if history.rollbacks_after("" if known is None else known.returned):
            continue
        row = each.disk.neighbours.get(machine.name)
        if row is not None and row.life and row.life not in lives:
            return True
        held = {row.life: row.number for row in machine.disk.received.values() if row.peer.name == each.name}
        of_it = [row for row in each.disk.confirmed.values() if row.peer.name == machine.name]
        if any(row.number > held.get(row.life, 0) for row in of_it):
            return True
    return False


def is_refused(row: NeighbourRow | None, judge: Machine, machine: Machine) -> bool:
    """Whether this, known of a neighbour at a judge, forbids its store and its lives. A judge whose own store lacks a
    life that the neighbour knows does not judge lives."""
    if row is None or row.state != KNOWN:
        return False
    known = machine.disk.neighbours.get(judge.name)
    lacks = known is not None and known.life != "" and all(each.id != known.life for each in judge.disk.lives.values())
    is_other_life = row.life != "" and all(each.id != row.life for each in machine.disk.lives.values())
    return row.store not in ("", machine.disk.identity) or (is_other_life and not lacks)
