"""How long a piece of work takes, in yardsticks: a fixed piece of work of the same process, timed before and after.

A test that bounds work by seconds fails on a busy machine, and on a fast one it passes whatever was made slower. A
yardstick is slowed down by the same neighbours. The thread's processor time counts, and the best of several ratios: the
process's stands still for up to a tick of the kernel once a profiling timer has been set.
"""

from __future__ import annotations

import time
from collections.abc import Callable

STEPS = 50_000


def yardstick() -> float:
    """Seconds of the thread's processor time of a fixed loop: some 3 ms where the limits were set."""
    start = time.thread_time()
    total = 0
    for step in range(STEPS):
        total += step ^ (total & 7)
    return time.thread_time() - start


def yardsticks(action: Callable[[], object], enough: float, times: int = 5) -> float:
    """How many yardsticks the action takes at best; it is tried again while that is more than enough."""
    best, before = float("inf"), yardstick()
    for _ in range(times):
        start = time.thread_time()
        action()
        seconds = time.thread_time() - start
        after = yardstick()
        best = min(best, 2 * seconds / (before + after))
        if best < enough:
            break
        before = after
    return best
