"""Small subscription tables, and what a caller can see of them."""

from __future__ import annotations

from functools import cache, partial
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.cover_oracles import MIXED_SPACES, ints
from helpers.match_oracles import Pool, mixed_pool
from thatch import Space, SubscriptionTable

SEED = 20240303
PRICES = "symbol string, price double not null 0..1000, volume int"
SETTINGS = [(None, False), ("exact", False), ("exact", True), ("pairwise", False), ("pairwise", True)]
settings = pytest.mark.parametrize(("cover", "retract"), SETTINGS)
quietly = pytest.mark.filterwarnings("ignore::thatch.errors.EmptyRegionWarning")


def prices(**options: Any) -> SubscriptionTable:
    return SubscriptionTable(Space.parse(PRICES), **options)


def line(cover: str | None = "exact", retract: bool = False, **intervals: tuple[int, int]) -> SubscriptionTable:
    """Intervals of 0..99 under names."""
    table = SubscriptionTable(ints(100), cover, retract)
    for id, (low, high) in intervals.items():
        table.subscribe(id, f"a0 BETWEEN {low} AND {high}")
    return table


def active(table: SubscriptionTable) -> list[Any]:
    return [id for id in table if table[id].active]


def passive(table: SubscriptionTable) -> dict[Any, Any]:
    return {id: table[id].certificate for id in table if not table[id].active}


def pairs(found: pa.Table) -> list[tuple[int, Any]]:
    return list(zip(found["event_index"].to_pylist(), found["subscription_id"].to_pylist(), strict=True))


def ball_pool() -> Pool:
    """Balls and boxes, and watchlists long enough to get postings."""
    random = Random(f"{SEED}/balls")
    space = Space.parse("x int not null 0..30, y int not null 0..30, name string")
    clauses = [
        f"within({random.choice((2, 5, 8))}, x, {random.randint(10, 14)}, y, {random.randint(10, 14)})"
        + random.choice(("", " AND name = 'n3'", " AND x < 12"))
        for _ in range(25)
    ]
    clauses += [f"x BETWEEN {at} AND {at + random.randint(2, 20)} AND y < {random.randint(9, 30)}" for at in range(20)]
    for size in (20, 30, 40):
        names = ", ".join(f"'n{at}'" for at in random.sample(range(60), size))
        clauses += [f"name IN ({names})", f"name IN ({names}) AND x < {size // 2}", f"name NOT IN ({names})"]
    regions = [space.where(clause) for clause in clauses]
    events = [
        {"x": random.randint(5, 20), "y": random.randint(5, 20), "name": random.choice([None, "n3", f"n{at % 70}"])}
        for at in range(150)
    ]
    mask = np.array([[region.contains(event) for region in regions] for event in events])
    return Pool(space, regions, events, mask)


@cache
def regions_and_events(kind: str) -> Pool:
    return {"bounded": partial(mixed_pool, MIXED_SPACES[0]), "strings": partial(mixed_pool, MIXED_SPACES[1])}.get(
        kind, ball_pool
    )()
