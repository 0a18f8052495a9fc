"""The process that Spark forks its Python workers from, in sessions that a command starts: it has what matching needs.

By itself each worker would import PySpark from a zip, whose sources it compiles, then Arrow, Numba and Thatch, and load
kernels: seconds, before the first event. Here they are loaded once, and every worker has them when it is forked. None
of them has started a thread by then, which a fork would lose.

    spark.python.daemon.module = thatch.cli.spark_jobs.daemon
"""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec


def load() -> None:
    """Imports what workers run, and calls the kernels of matching once."""
    import pyarrow as pa
    import pyspark.worker  # noqa: F401

    import thatch.spark.matching.match  # noqa: F401
    from thatch.matching.index import TreeMatcher
    from thatch.space.space import Space

    space = Space.parse("x double, n int not null, s string")
    matcher = TreeMatcher(space)
    clauses = ("x < 3 AND n > 2", "s = 'a' OR x > 5", "within(3, x, 1, n, 2)")
    matcher.add_many(list(range(len(clauses))), [space.where(clause) for clause in clauses])
    events = {"x": pa.array([1.0, None]), "n": pa.array([3, 4]), "s": pa.array(["a", None])}
    matcher.view().match_points(space.encode_batch(events))


def serve() -> None:
    """Does what Spark expects of its daemon, until Spark ends it."""
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()  # a worker looks for garbage after every task: not among all of this
    manager()


def use_installed_pyspark() -> None:
    """Not the zip, which comes first on the path of workers: its sources would be compiled again each time."""
    before = list(sys.path)
    sys.path[:] = [path for path in before if not path.endswith(".zip")]
    sys.path_importer_cache.clear()  # else every worker reads the zip's directory
    if find_spec("pyspark") is None:
        sys.path[:] = before


if __name__ == "__main__":
    use_installed_pyspark()
    load()
    serve()
