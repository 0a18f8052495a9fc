"""How hot code is compiled: Numba, cached on disk where that is possible, without the interpreter lock.

A module of kernels imports Numba, which costs a tenth of a second, so it is imported by the functions that need it
and never by `import thatch`. Where kernels have to be compiled after all, a line in the log says why a call takes long.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numba
import numba.core.environment
import numba.core.event
import numba.core.options
import numba.extending
from llvmlite import ir
from numba.core.runtime.nrt import rtsys

types: Any = numba.types
events: Any = numba.core.event
environments: Any = numba.core.environment
F = TypeVar("F", bound=Callable[..., Any])
# This file and all with kernels, as a test makes sure: to look for them would cost each process time.
KERNEL_FILES = (
    "cover/balltree.py",
    "cover/conflict.py",
    "cover/index.py",
    "cover/ranges.py",
    "cover/rectangles.py",
    "cover/search.py",
    "grid/curve.py",
    "grid/grid.py",
    "jit.py",
    "matching/blocks.py",
    "matching/entries.py",
    "matching/hilbert.py",
    "matching/partition.py",
    "matching/postings.py",
    "matching/tree.py",
    "merge/pairs.py",
    "region/boxes.py",
    "rivals/counting.py",
    "space/arrays.py",
)
SILENT_SECONDS = 1.0  # that compiling may take before a line says so
carray: Any = numba.carray  # type: ignore[attr-defined]  # an array at a pointer
intrinsic: Any = numba.extending.intrinsic  # a function that writes its own LLVM instructions


_CAN_BORROW = hasattr(numba.core.options.DefaultOptions, "_nrt")  # else kernels count, which costs time only


def address(array: Any) -> int:
    """Where an array's numbers are: for `int64_at` and its like, while the array is kept."""
    place: int = array.__array_interface__["data"][0]
    return place


def _pointer_to(kind: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def pointer(typingctx: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), generate

    return pointer


# An array argument costs a call from Python a tenth of a microsecond, for a dozen more than the search itself takes. A
# kernel on the path of a single event takes their addresses in one array: `carray(int64_at(address), shape)`.
int64_at = _pointer_to(types.int64)
int32_at = _pointer_to(types.int32)
uint8_at = _pointer_to(types.uint8)
float64_at = _pointer_to(types.float64)


@intrinsic  # type: ignore[untyped-decorator]
def lowest(typingctx: Any, word: Any) -> Any:
    """The position of the lowest set bit of a word that is not zero: one instruction."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


class Announcer(numba.core.event.Listener):
    """Says once in a process that kernels are being compiled, when that has taken more than a second. Loading them from
    the cache is no event of this kind."""

    def __init__(self, say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._say, self._now = say, now
        self._depth, self._start, self._total = 0, 0.0, 0.0  # a kernel is compiled while one that calls it is
        self.is_cached = True
        self.is_silent = False

    def on_start(self, event: Any) -> None:
        if not _is_ours(event):
            return
        if not self._depth:
            self._start = self._now()
        self._depth += 1
        self._look()

    def on_end(self, event: Any) -> None:
        if not _is_ours(event):
            return
        self._look()
        self._depth -= 1
        if not self._depth:
            self._total += self._now() - self._start

    def _look(self) -> None:
        if not self.is_silent and self._total + self._now() - self._start > SILENT_SECONDS:
            self.is_silent = True
            later = (
                "`thatch warm` compiles everything beforehand"
                if self.is_cached
                else "no cache directory can be written, so each process does this again; set NUMBA_CACHE_DIR"
            )
            self._say(f"thatch: compiling hot code for the first time, which takes up to a minute; {later}")


def _is_ours(event: Any) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith("thatch.")


announcer = Announcer(logging.getLogger(__name__).warning)
events.register("numba:compile", announcer)


def kernel(function: F) -> F:
    """Compile on first call. Where no cache directory can be written, compile in each process instead."""
    return _compiled(function, "never")


def borrowing(function: F) -> F:
    """A kernel that only reads and writes its caller's arrays: it makes none and returns none, so that it need not
    count who holds them. Otherwise each array that a call passes, or that is taken out of a tuple, is counted up and
    down, which for a dozen arrays takes longer than a short kernel does, and longer to compile. Making an array here
    does not compile."""
    return _compiled(function, "never", is_counting=False)


def inlined(function: F) -> F:
    """A kernel that is copied into the kernels that call it: for what is called in one place, and for a few lines on
    the path of every box. A kernel is compiled together with all that it calls, so what is called through three others
    is compiled four times."""
    return _compiled(function, "always")


def inner(function: F) -> F:
    """A borrowing kernel that only kernels call: without the door for Python, which takes apart every array of every
    argument, it compiles much faster. Called from Python it would crash."""
    return _compiled(function, "never", is_counting=False, is_inner=True)


def _compiled(function: F, inline: Literal["always", "never"], is_counting: bool = True, is_inner: bool = False) -> F:
    # Nobody calls a kernel from C: without the wrapper for it, each compiles a tenth faster.
    options: dict[str, Any] = {"nogil": True, "inline": inline, "no_cfunc_wrapper": True}
    if _CAN_BORROW:  # always said: a kernel would take it over from the one for which it is compiled first
        options["_nrt"] = is_counting
    if is_inner:
        options["no_cpython_wrapper"] = True
    try:
        compiled: Any = numba.njit(cache=True, **options)(function)
        with suppress(AttributeError):  # should Numba's own names change, it works as it does by itself
            file = compiled._cache._cache_file
            file._source_stamp = _kernels_stamp()
            # Compared before the rest of an index is unpickled, which fails if a type that it names is gone.
            file._version = f"{file._version} {_kernels_stamp()}"
            cache: Any = compiled._cache
            cache.load_overload = partial(_loaded, cache, cache.load_overload)
    except (RuntimeError, OSError):  # "no locator available": neither next to the file nor in the user's home
        announcer.is_cached = False
        compiled = numba.njit(**options)(function)
    result: F = compiled
    return result


def _loaded(cache: Any, load_fully: Callable[[Any, Any], Any], signature: Any, context: Any) -> Any:
    """A kernel from the cache. Numba by itself first imports and registers all that it can compile, which takes as long
    as everything else in a first match. To run what is compiled, its runtime is enough; the compiler sees to the rest
    when it has something to do."""
    try:
        rtsys.initialize(context)
        found = cache._load_overload(signature, context)
    except Exception:  # should Numba's own names change, it works as it does by itself
        found = None
    return load_fully(signature, context) if found is None else found


def _load_environments(rebuild: Callable[[str, Any, str], Any]) -> Callable[[str, Any, str], Any]:
    """A kernel in the cache names each module that it has code of, and Numba imports these: of its own modules, with
    all that they import, for globals that code without Python objects never looks at. Names of modules stand for them
    until somebody else imports them."""

    def environment(module: str, constants: Any, name: str) -> Any:
        if module in sys.modules or not module.startswith("numba."):
            return rebuild(module, constants, name)
        known = environments.lookup_environment(name)
        if known is None:
            known = environments.Environment({"__name__": module})
            known.consts[:] = constants
            known.env_name = name
            environments.Environment._memo[name] = known
        return known

    environment.__module__, environment.__qualname__ = rebuild.__module__, rebuild.__qualname__  # as it is pickled
    return environment


with suppress(AttributeError):  # should Numba's own names change, it works as it does by itself
    environments._rebuild_env = _load_environments(environments._rebuild_env)


@lru_cache
def _kernels_stamp() -> str:
    """Of all files with kernels. Numba keeps what it compiled until the kernel's own file changes; but kernels are
    copied into kernels of other files, and what they pass one another must be of one kind, or they crash."""
    digest = hashlib.sha256()
    for name in KERNEL_FILES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()
