from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The contract suites run every cover engine and every match index."""
    if "engine_class" in metafunc.fixturenames:
        from helpers.cover_contract import VARIANTS

        metafunc.parametrize("engine_class", list(VARIANTS.values()), ids=list(VARIANTS))
    if "matcher_class" in metafunc.fixturenames:
        from helpers.match_contract import CONTENDERS

        metafunc.parametrize("matcher_class", list(CONTENDERS.values()), ids=list(CONTENDERS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test on Spark is of one group, so that one worker of pytest-xdist has them all and there is one session.

    First the files that need no Spark, which is starting meanwhile; last what asks a process in the background.
    """
    files = {item.path for item in items if _needs_spark(item)}
    for item in items:
        if item.path in files or item.get_closest_marker("background"):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=lambda item: 2 if item.get_closest_marker("background") else int(item.path in files))


def _needs_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def pytest_collection_finish(session: pytest.Session) -> None:
    # A tenth of the time went into looking for garbage among what stays: modules, tests, whatever Numba keeps.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    if session.config.option.collectonly or not find_spec("pyspark") or not _begins_with_spark(session.config):
        return
    if any(map(_needs_spark, session.items)):
        Starting.begin()
    if any(item.path.name == "test_spark_cluster.py" for item in session.items):
        from helpers.spark_cluster import Cluster

        Cluster.start()


def _begins_with_spark(config: pytest.Config) -> bool:
    """The only process, or the worker that is given the largest group: the first one. The others start nothing, and
    neither does the process that deals out the tests."""
    return os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0" and not getattr(config.option, "numprocesses", None)


def pytest_unconfigure() -> None:
    module = sys.modules.get("helpers.spark_cluster")
    if module is not None:
        module.Cluster.stop()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many seconds the tests of each folder took, added up over the workers."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                seconds["/".join(report.nodeid.split("::")[0].split("/")[:-1][:3])] += report.duration
    if len(seconds) > 1:
        terminalreporter.section("seconds by folder")
        for folder, total in seconds.most_common():
            terminalreporter.write_line(f"{total:7.1f}  {folder}")


class Starting:
    """Spark, from when it is known that a test needs it."""

    session: Future[SparkSession] | None = None

    @classmethod
    def begin(cls) -> Future[SparkSession]:
        cls.session = cls.session or ThreadPoolExecutor(1).submit(_started)
        return cls.session


def _started() -> SparkSession:
    """A small local Spark, as strict as ours: ANSI on, time zone UTC.

    The JVM stops at its first compiler: a test run is over before the second one has paid for itself. For the same
    reason plans are interpreted, but for `make soak`; those of test_spark_cluster.py are compiled.
    """
    from thatch.cli.spark_jobs import session

    paths = (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # where workers find helpers/spark_daemon.py
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.log.level": "OFF",
        "spark.python.daemon.module": "helpers.spark_daemon",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
    }
    if not os.environ.get("THATCH_SOAK"):
        settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    return session._started("local[2]", settings)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    session = SparkSession(Starting.begin().result().sparkContext)
    session.createDataFrame([], "nothing int")  # makes it the active one in this thread, too
    yield session
    session.stop()
