"""How hot code is compiled: Numba, cached on disk where that is possible, without the interpreter lock.

A module of kernels imports Numba, which costs a tenth of a second, so it is imported by the functions that need it
and never by `import thatch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile on first call. Where no cache directory can be written, compile in each process instead."""
    try:
        compiled: Any = numba.njit(cache=True, nogil=True)(function)
    except (RuntimeError, OSError):  # "no locator available": neither beside the file nor in the user's home
        compiled = numba.njit(nogil=True)(function)
    result: F = compiled
    return result
