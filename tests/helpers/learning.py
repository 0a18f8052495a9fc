"""Events and subscriptions to learn from, and what both engines must agree on."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from thatch import Learned, Space

SPACE = "x double not null 0..100, y int not null 0..99, s string"
WORDS = ("ash", "beech", "cedar", None)


def space_to_learn() -> Space:
    return Space.parse(SPACE)


def clauses_to_learn(dice: Random) -> dict[str, str]:
    """Boxes, most of them in the west and in the south; nested, equal and of several terms."""
    clauses = {}
    for at in range(24):
        x, y, size = dice.uniform(0, 40), dice.randrange(60), dice.choice((3, 8, 15))
        clauses[f"box{at}"] = f"x BETWEEN {x:.2f} AND {x + size:.2f} AND y BETWEEN {y} AND {y + size}"
        if at % 4 == 0:
            clauses[f"inner{at}"] = f"x BETWEEN {x + 1:.2f} AND {x + 2:.2f} AND y BETWEEN {y} AND {y + size}"
        if at % 8 == 0:
            clauses[f"equal{at}"] = clauses[f"box{at}"]
            clauses[f"word{at}"] = f"{clauses[f'box{at}']} AND s IN ('ash', 'oak')"
    return clauses | {
        "far": "x > 90 AND y > 80",
        "two": "x < 1 AND y < 5 OR x > 99 AND y < 5",
        "none": "x < 5 AND x > 6",
    }


def events_to_learn(dice: Random, count: int = 3000) -> pa.Table:
    rows = [(dice.uniform(0, 60), dice.randrange(100), dice.choice(WORDS)) for _ in range(count)]
    schema = pa.schema([pa.field("x", pa.float64(), False), pa.field("y", pa.int64(), False), ("s", pa.string())])
    return pa.Table.from_arrays(list(map(pa.array, zip(*rows, strict=True))), schema=schema)


def rows_of(table: Any) -> list[dict[str, Any]]:
    """The rows of a table of either engine."""
    return list((table if isinstance(table, pa.Table) else table.toArrow()).to_pylist())


def assert_same_learned(ours: Learned[pa.Table], theirs: Learned[Any], with_phi: bool = True) -> None:
    """Every field and every row; a table of Spark's has no order. Spark takes longest for phi."""
    for name in ("events", "subscriptions", "attributes", "boundaries"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for name in ("selectivity", "cells", "matches", "pairs", "regions", *(["phi"] if with_phi else [])):
        mine, other = rows_of(getattr(ours, name)), rows_of(getattr(theirs, name))
        assert sorted(map(repr, mine)) == sorted(map(repr, other)), name
        assert getattr(ours, name).schema.names == getattr(theirs, name).columns, name
    assert (ours.places.attributes, ours.places.clauses) == (theirs.places.attributes, theirs.places.clauses)
    for name in ("events", "sampled", "unwanted", "subscriptions"):
        assert (getattr(ours.places, name) == getattr(theirs.places, name)).all(), name
    assert ours.hilbert() == theirs.hilbert()
