"""`import thatch` is cheap: no Spark, no SQL parser, no compiler, nothing compiled."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numba", "llvmlite", "sqlglot", "pyarrow", "pyspark", "pandas", "hypothesis", "aiohttp")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_nothing_heavy_is_loaded() -> None:
    loaded = run("import thatch, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))").split()
    assert not set(HEAVY) & set(loaded)


def test_costs_under_three_tenths_of_a_second_over_numpy() -> None:
    code = "import numpy, time; start = time.perf_counter(); import thatch; print(time.perf_counter() - start)"
    assert min(float(run(code)) for _ in range(5)) < 0.3


def test_parsing_and_single_events_need_no_compiler() -> None:
    code = (
        "import thatch, sys; space = thatch.Space.parse('price double'); "
        "assert space.where('price < 20 OR price > 90').contains({'price': 12.0}); print('numba' in sys.modules)"
    )
    assert run(code).strip() == "False"
