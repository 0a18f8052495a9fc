"""Claim: many rules of packet filters are redundant, more by a union than by one, each with a proof that verifies.

ClassBench rule sets: each rule is a box over addresses, ports and protocol. Rules are taken in the order of the file; a
rule is redundant if the kept ones before it cover it. The last rule of most sets matches everything and is dropped.
Five sets are in tests/data; two larger ones are added if they are found in THATCH_DATA (default ../shared/data).
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import report
from thatch import Region, Space
from thatch.cover import Covered, ExactEngine, PairwiseEngine, region_of_box, verify

ROOT = Path(__file__).parent.parent
VENDORED = ROOT / "tests" / "data" / "classbench"
SPACE = Space.parse(
    "source int not null 0..4294967295, destination int not null 0..4294967295, "
    "source_port int not null 0..65535, destination_port int not null 0..65535, protocol int not null 0..255"
)


def read_rules(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rules of a file as boxes, without a rule that matches everything."""
    lows, highs = [], []
    for line in path.read_text().splitlines():
        fields = line.lstrip("@").replace(":", " ").split()
        if not fields:
            continue
        source, destination = _prefix(fields[0]), _prefix(fields[1])
        ports = [int(field) for field in fields[2:6]]
        value, mask = (int(part, 16) for part in fields[6].split("/"))
        protocol = (value, value) if mask else (0, 255)
        lows.append([source[0], destination[0], ports[0], ports[2], protocol[0]])
        highs.append([source[1], destination[1], ports[1], ports[3], protocol[1]])
    low, high = np.array(lows, np.int64), np.array(highs, np.int64)
    everything = ((low == SPACE.low) & (high == SPACE.high)).all(axis=1)
    return low[~everything], high[~everything]


def _prefix(text: str) -> tuple[int, int]:
    address, length = text.split("/")
    a, b, c, d = (int(part) for part in address.split("."))
    size = 2 ** (32 - int(length))
    first = ((a << 24) | (b << 16) | (c << 8) | d) // size * size
    return first, first + size - 1


def rule_sets() -> dict[str, Path]:
    """Every set that can be found, vendored ones first."""
    data = Path(os.environ.get("THATCH_DATA", ROOT.parent / "shared" / "data")) / "classbench"
    names = ("acl1_1k", "acl3_1k", "fw1_1k", "fw3_1k", "ipc1_1k", "acl1_10k", "fw1_10k")
    found = {name: next((p / name for p in (VENDORED, data) if (p / name).is_file()), None) for name in names}
    for name, path in found.items():
        if path is None:
            print(f"{name}: not found in {data}, left out")
    return {name: path for name, path in found.items() if path is not None}


def redundant(path: Path) -> dict[str, object]:
    """How many rules are redundant by one and by a union; every certificate is verified."""
    low, high = read_rules(path)
    regions: dict[int, Region] = {
        number: region_of_box(*each, SPACE) for number, each in enumerate(zip(low.tolist(), high.tolist(), strict=True))
    }
    by_one = PairwiseEngine(SPACE).add_many(list(regions), list(regions.values()))
    by_union = ExactEngine(SPACE).add_many(list(regions), (low, high))
    proofs = [(number, verdict) for number, verdict in enumerate(by_union) if isinstance(verdict, Covered)]
    verified = sum(verify(verdict, regions[number], regions) for number, verdict in proofs)
    return {
        "set": path.name,
        "rules": len(low),
        "by one": sum(isinstance(verdict, Covered) for verdict in by_one),
        "by union": len(proofs),
        "certificates verified": verified,
        "names in the longest": max((len(verdict.certificate) for _, verdict in proofs), default=0),
        "unproven": sum(not verdict and not hasattr(verdict, "witness") for verdict in by_union),
    }


def main() -> None:
    report("classbench", [redundant(path) for path in rule_sets().values()])


if __name__ == "__main__":
    main()
