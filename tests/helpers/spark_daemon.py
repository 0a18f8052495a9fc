"""The process that Spark's Python workers are forked from, in tests: it has what reducing needs, too.

Spark takes a new worker after each task that failed. Each would begin with loading what it needs: seconds, for tests
that ask for milliseconds of work.
"""

from __future__ import annotations

from thatch.cli.spark_jobs import daemon


def decide_once() -> None:
    """Loads what reducing needs."""
    import numpy as np

    from thatch import Space
    from thatch.cover import ExactEngine

    low, high = np.array([[0], [2], [1]]), np.array([[5], [8], [7]])
    ExactEngine(Space.parse("n int not null 0..9")).add_unions(range(3), low, high, np.arange(4))


if __name__ == "__main__":
    daemon.use_installed_pyspark()
    daemon.load()
    decide_once()
    daemon.serve()
