from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_finish(session: pytest.Session) -> None:
    # A tenth of the time went into looking for garbage among what stays: modules, tests, whatever Numba keeps.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    if any(item.path.name == "test_spark_cluster.py" for item in session.items) and find_spec("pyspark"):
        from test_spark_cluster import Cluster

        Cluster.start()


def pytest_unconfigure() -> None:
    module = sys.modules.get("test_spark_cluster")
    if module is not None:
        module.Cluster.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small local Spark, as strict as ours: ANSI on, time zone UTC.

    The JVM stops at its first compiler: a test run is over before the second one has paid for itself. For the same
    reason plans are interpreted, but for `make soak`; those of test_spark_cluster.py are compiled. And Spark does not
    note for every column where in a program it was made, which takes most of the time of making one.
    """
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": "1g",
        "spark.log.level": "OFF",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if not os.environ.get("THATCH_SOAK"):
        settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    builder = SparkSession.builder.master("local[2]").appName("thatch-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
