"""A line says so when kernels have to be compiled."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

import numba
import pytest

from helpers.paths import SOURCE
from thatch.jit import KERNEL_FILES, Announcer, events


@pytest.fixture
def announcer() -> Iterator[tuple[Announcer, list[str]]]:
    """One whose clock goes on by 0.4 s whenever it is looked at."""
    said: list[str] = []
    ticks = count()
    own = Announcer(said.append, lambda: next(ticks) * 0.4)
    events.register("numba:compile", own)
    yield own, said
    events.unregister("numba:compile", own)


def compile_new(module: str) -> None:
    def plus(x: int) -> int:
        return x + 1

    plus.__module__ = module
    compiled: Any = numba.njit(plus)
    compiled(1)


def test_compiling_is_said_once(announcer: tuple[Announcer, list[str]]) -> None:
    _, said = announcer
    compile_new("somebody")
    assert said == []
    for _ in range(3):
        compile_new("thatch.example")
    assert len(said) == 1 and "`thatch warm`" in said[0]


def test_every_file_with_kernels_is_known() -> None:
    found = (path for path in SOURCE.rglob("*.py") if "thatch.jit import" in path.read_text())
    assert sorted({"jit.py", *(str(path.relative_to(SOURCE)) for path in found)}) == list(KERNEL_FILES)


def test_loading_a_kernel_imports_no_compiler() -> None:
    code = (
        "import sys, thatch\n"
        "table = thatch.SubscriptionTable(thatch.Space.parse('price double, symbol string'))\n"
        "table.subscribe('a', 'price < 20')\n"
        "assert table.match({'price': 1.0}) == ['a']\n"
        "print('numba.np.random.legacy' in sys.modules or 'numba.typed.typeddict' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n", "these belong to the compiler: is everything compiled (thatch warm)?"


def test_without_a_cache_the_advice_is_another(announcer: tuple[Announcer, list[str]]) -> None:
    own, said = announcer
    own.is_cached = False
    for _ in range(3):
        compile_new("thatch.example")
    assert "NUMBA_CACHE_DIR" in said[0]


ARRAYS = """
import sys
import numpy as np
import thatch

table = thatch.SubscriptionTable(thatch.Space.parse("price double, symbol string"))
table.subscribe("ann", "price < 20")
assert table.match({"price": 12.5}) == ["ann"]
assert "numba.np.arrayobj" not in sys.modules, "kernels from the cache import the compiler's own modules"

import numba

@numba.njit
def made(size):
    array = np.empty(size, np.int64)
    for at in range(size):
        array[at] = at
    if size > 3:
        raise ValueError("too many")
    return np.concatenate((array, array))

assert made(2).tolist() == [0, 1, 0, 1]
try:
    made(4)
except ValueError as error:
    assert str(error) == "too many"
else:
    raise AssertionError("no error")
assert table.match({"price": 12.5}) == ["ann"]
"""


def test_kernels_from_the_cache_import_no_module_of_the_compiler() -> None:
    """And whoever compiles afterwards finds all of them."""
    warm = ARRAYS[: ARRAYS.index('assert "numba')]
    subprocess.run([sys.executable, "-c", warm], check=True)
    subprocess.run([sys.executable, "-c", ARRAYS], check=True)
