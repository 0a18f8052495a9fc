"""Each door loads only what is behind it: no Spark, SQL parser, compiler or web server where it is not needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Top-level modules that a door loads, other than Python's own.
LIBRARY = {"thatch", "numpy", "msgspec", "sortedcontainers"}
WEB = {
    "aiohttp",
    "aiohappyeyeballs",
    "aiosignal",
    "attr",
    "attrs",
    "frozenlist",
    "idna",
    "multidict",
    "propcache",
    "yarl",
}
SPARK = {"numba", "llvmlite", "pyarrow", "pyspark", "py4j", "pandas", "dateutil", "pytz", "tzdata", "six"}
ALLOWED = {"thatch": LIBRARY, "thatch.client": LIBRARY | WEB, "thatch.spark": LIBRARY | SPARK}
# What these load if it happens to be installed.
OPTIONAL = {"brotli", "brotlicffi", "backports", "cython_runtime", "yaml", "zstandard", "google", "typing_extensions"}
LOADED = (
    "import sys; before = set(sys.modules); import {door}; "
    "print(*sorted({{name.partition('.')[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names)))"
)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.long
@pytest.mark.parametrize("door", ALLOWED)
def test_a_door_loads_only_what_is_behind_it(door: str) -> None:
    loaded = {name for name in run(LOADED.format(door=door)).split() if not name.startswith("_")}
    assert loaded - OPTIONAL <= ALLOWED[door]


def test_parsing_and_single_events_need_no_compiler() -> None:
    code = (
        "import thatch, sys; space = thatch.Space.parse('price double'); "
        "assert space.where('price < 20 OR price > 90').contains({'price': 12.0}); print('numba' in sys.modules)"
    )
    assert run(code).strip() == "False"


def test_everything_that_is_exported_is_there() -> None:
    code = "import thatch, thatch.broker as b; print([n for m in (thatch, b) for n in m.__all__ if not hasattr(m, n)])"
    assert run(code).strip() == "[]"
