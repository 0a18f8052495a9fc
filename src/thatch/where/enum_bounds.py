"""Regions within typed bounds of an enum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thatch.region.region import Region
from thatch.space.axis import quoted
from thatch.space.space import Space
from thatch.where.to_sql import name_sql


def within_enum(
    regions: list[Region], index: int, low: Sequence[Any], high: Sequence[Any], space: Space
) -> list[Region]:
    """Regions within the bounds of an enum: strings that lie between two need not be neighbours in it."""
    name, known, result = name_sql(space.attributes[index]), dict[Any, Region](), []
    for region, pair in zip(regions, zip(low, high, strict=True), strict=True):
        if pair not in known:
            ends = [f"{name} {sign} {quoted(v)}" for sign, v in zip((">=", "<="), pair, strict=True) if v is not None]
            known[pair] = space.where(" AND ".join(ends) or "TRUE")
        result.append(region & known[pair])
    return result
