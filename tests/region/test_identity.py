"""Keys of regions: equal where the regions are, in whatever order their spaces met the literals."""

from __future__ import annotations

from random import Random

import pytest

from thatch import Space
from thatch.region.identity import region_key


@pytest.mark.parametrize("kind", ["string", "decimal(38,10)", "int", "double not null"])
def test_keys_are_equal_where_regions_are(kind: str) -> None:
    random, clauses = Random(kind), []
    for _ in range(120):
        low, high = sorted(random.sample(range(-9, 9), 2))
        literal = (lambda n: f"'{chr(80 + n)}'") if kind == "string" else str
        clauses.append(
            random.choice(
                [
                    f"x >= {literal(low)}",
                    f"x < {literal(high)}",
                    f"x BETWEEN {literal(low)} AND {literal(high)}",
                    f"x IS NULL OR x > {literal(low)}",
                    f"x IN ({literal(low)}, {literal(high)})",
                    "x IS NULL",
                    "TRUE",
                ]
            )
        )
    one, other = Space.parse(f"x {kind}, y int"), Space.parse(f"x {kind}, y int")
    early = [region_key(one.where(clause)) for clause in clauses]
    regions = [one.where(clause) for clause in clauses]
    for clause in random.sample(clauses, len(clauses)):
        other.where(clause)
    late = [region_key(other.where(clause)) for clause in clauses]
    assert early == late == [region_key(region) for region in regions]
    for at, region in enumerate(regions):
        for after in range(at):
            assert (early[at] == early[after]) == (region == regions[after]), (clauses[at], clauses[after])
