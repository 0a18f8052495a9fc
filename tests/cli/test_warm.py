"""`thatch warm` compiles what later calls need."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from thatch.cli.main import main

USES = """
import pyarrow as pa
import thatch

space = thatch.Space.parse("price double, symbol string, lots int not null 0..100")
table = thatch.SubscriptionTable(space)
table.subscribe("a", "price < 20 AND symbol IN ('A', 'B')")
table.subscribe("b", "within(3, price, 1, lots, 2)")
table.match({"price": 12.5, "lots": 3})
table.match_batch(pa.table({"price": [1.0, None], "symbol": ["A", None], "lots": [1, 2]}))
table.unsubscribe("a")
listed = ", ".join(f"'S{each}'" for each in range(30))
rules = {"c": f"symbol IN ({listed})", "d": "within(3, price, 1, lots, 2)"} | {f"x{n}": f"lots < {n}" for n in range(9)}
thatch.match(pa.table({"price": [1.0, None] * 50, "symbol": ["S1", None] * 50, "lots": [1, 2] * 50}), rules, space)
thatch.covers(["price < 10", "price > 5"], "price BETWEEN 1 AND 7", space)
"""


@pytest.mark.long
def test_afterwards_nothing_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "the exact engine" in found["parts"] and found["seconds"] > 0
    said = subprocess.run(
        [sys.executable, "-c", USES], env=os.environ | {"NUMBA_DEBUG_CACHE": "1"}, check=True, capture_output=True
    ).stdout.decode()
    assert "data loaded from" in said and "data saved to" not in said, said
