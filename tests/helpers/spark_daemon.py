"""The process that Spark's Python workers are forked from, in tests: it has what a worker needs.

Spark takes a new worker after each task that failed. Each would begin with PySpark from a zip, whose sources it
compiles, with Arrow, pandas and Numba, and with loading kernels: seconds, for tests that ask for milliseconds of work.
"""

from __future__ import annotations

import gc
import sys


def match_once() -> None:
    """Loads what matching needs."""
    import numpy as np
    import pyarrow as pa

    from thatch import Space
    from thatch.matching.index import TreeMatcher

    space = Space.parse("x double, n int not null, s string")
    matcher = TreeMatcher(space)
    clauses = ("x < 3 AND n > 2", "s = 'a' OR x > 5", "within(3, x, 1, n, 2)")
    matcher.add_many(np.arange(len(clauses)), [space.where(clause) for clause in clauses])
    events = {"x": pa.array([1.0, None]), "n": pa.array([3, 4]), "s": pa.array(["a", None])}
    matcher.view().match_points(space.encode_batch(events))


def decide_once() -> None:
    """Loads what reducing needs."""
    import numpy as np

    from thatch import Space
    from thatch.cover import ExactEngine

    low, high = np.array([[0], [2], [1]]), np.array([[5], [8], [7]])
    ExactEngine(Space.parse("n int not null 0..9")).add_unions(range(3), low, high, np.arange(4))


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]  # PySpark as it is installed
    sys.path_importer_cache.clear()  # else every worker reads the zip's directory
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import thatch.spark  # noqa: F401

    match_once()
    decide_once()
    gc.freeze()  # a worker looks for garbage after every task: not among all of this
    manager()
