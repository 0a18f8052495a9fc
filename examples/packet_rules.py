"""Packet rules: a firewall's rules as boxes, those that can never be the first match, and who matches which packet.

Run it: `python examples/packet_rules.py [FILE]`
"""

from __future__ import annotations

import random
import sys
from ipaddress import ip_network
from pathlib import Path

from thatch import Space, SubscriptionTable

RULES = Path(__file__).parent.parent / "tests" / "data" / "classbench" / "fw1_1k"
SPACE = Space.parse(
    "source int not null 0..4294967295, destination int not null 0..4294967295, "
    "source_port int not null 0..65535, destination_port int not null 0..65535, protocol int not null 0..255"
)
NAMES = [attribute.name for attribute in SPACE]
EVERYTHING = [(0, 2**32 - 1), (0, 2**32 - 1), (0, 2**16 - 1), (0, 2**16 - 1), (0, 2**8 - 1)]


def box_of(line: str) -> list[tuple[int, int]]:
    """`@source/len destination/len port : port port : port protocol/mask flags/mask`, the flags left out."""
    fields = line.lstrip("@").replace(":", " ").split()
    source, destination = (ip_network(field, strict=False) for field in fields[:2])
    ports = [int(field) for field in fields[2:6]]
    protocol, mask = (int(part, 16) for part in fields[6].split("/"))
    return [
        (int(source.network_address), int(source.broadcast_address)),
        (int(destination.network_address), int(destination.broadcast_address)),
        (ports[0], ports[1]),
        (ports[2], ports[3]),
        (protocol, protocol) if mask else (0, 255),
    ]


def main(path: Path = RULES) -> None:
    lines = {number: line for number, line in enumerate(path.read_text().splitlines(), 1) if line.strip()}
    boxes = {number: box_of(line) for number, line in lines.items()}
    boxes = {number: box for number, box in boxes.items() if box != EVERYTHING}  # no default rule

    table = SubscriptionTable(SPACE)
    low = {name: [box[axis][0] for box in boxes.values()] for axis, name in enumerate(NAMES)}
    high = {name: [box[axis][1] for box in boxes.values()] for axis, name in enumerate(NAMES)}
    table.subscribe_many(list(boxes), low=low, high=high)  # ids are line numbers

    proofs = {id: rule.certificate for id, rule in table.items() if rule.certificate is not None}
    by_one = [f"{id} by {names[0]}" for id, names in proofs.items() if len(names) == 1]
    by_union = [id for id, names in proofs.items() if len(names) > 1]
    print(f"{path.name}: {len(table)} rules; {len(proofs)} are redundant: rules before them match all their packets")
    print(f"  {len(by_one)} are covered by one rule: {', '.join(by_one)}")
    print(f"  {len(by_union)} are covered only by several together:")
    for id in by_union:
        print(f"  rule {id:<8}{_shown(lines[int(id)])}")
        for name in proofs[id]:
            print(f"    by {name:<8}{_shown(lines[int(name)])}")

    dice = random.Random(1)
    drawn = [box for box in boxes.values() for _ in range(10)]
    packets = {name: [dice.randint(*box[axis]) for box in drawn] for axis, name in enumerate(NAMES)}
    pairs = table.match_batch(packets)
    first = pairs.group_by("event_index").aggregate([("subscription_id", "min")])["subscription_id_min"].to_pylist()
    print(f"\n{len(drawn):,} packets drawn from the rules: {len(pairs) / len(drawn):.1f} matches a packet")
    winners = set(first)
    print(f"  {len(winners)} rules were some packet's first match, {len(winners & proofs.keys())} of them redundant")


def _shown(line: str) -> str:
    return "  ".join(line.lstrip("@").split("\t")[:5])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
