"""How hot code is compiled: Numba, cached on disk where that is possible, without the interpreter lock.

A module of kernels imports Numba, which costs a tenth of a second, so it is imported by the functions that need it
and never by `import thatch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile on first call. Where no cache directory can be written, compile in each process instead."""
    return _compiled(function, "never")


def inlined(function: F) -> F:
    """A kernel that is copied into the kernels that call it. Each array that a call passes is counted up and down,
    which for a dozen arrays costs more than a short kernel does. Inlining spares most of the counts, but not all:
    innermost loops call only what takes numbers."""
    return _compiled(function, "always")


def _compiled(function: F, inline: Literal["always", "never"]) -> F:
    try:
        compiled: Any = numba.njit(cache=True, nogil=True, inline=inline)(function)
    except (RuntimeError, OSError):  # "no locator available": neither beside the file nor in the user's home
        compiled = numba.njit(nogil=True, inline=inline)(function)
    result: F = compiled
    return result
