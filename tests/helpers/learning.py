"""Events and subscriptions to learn from."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from thatch import Space

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
