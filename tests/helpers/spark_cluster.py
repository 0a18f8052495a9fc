"""A Spark cluster whose executors are processes of their own, and what matching on it finds.

A session has one master, so the cluster runs in another process: this file as a script, which writes what it found.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from helpers.spark_oracles import SEED, Events, Workload, differences, pairs, pairs_by_clauses, plain, some_ways
from thatch import Space

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEW_WAYS = [way for way in some_ways("native shuffled", "arrow") if way.given != "scan"]
SUBSCRIPTIONS = 40_000  # for an index of megabytes
JVM = (  # as in tests/conftest.py
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-XX:MetaspaceSize=200m"
)


class Cluster:
    """The process with the cluster. It takes half a minute, most of which it waits for machines to start, so that
    tests/conftest.py starts it when the tests are known; by the time that somebody asks, it is over."""

    process: subprocess.Popen[str] | None = None
    folder = Path()

    @classmethod
    def start(cls) -> None:
        import pyspark

        cls.folder = Path(tempfile.mkdtemp(prefix="thatch-cluster-"))
        home = cls.folder / "home"  # executors work below it, so it must not be that of the installation
        home.mkdir()
        for each in Path(pyspark.__file__).parent.iterdir():
            (home / each.name).symlink_to(each)
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        command = [sys.executable, "-m", "helpers.spark_cluster", str(cls.folder)]
        cls.process = subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True)

    @classmethod
    def stop(cls) -> None:
        if cls.process is not None:
            cls.process.terminate()
            cls.process.wait()
            shutil.rmtree(cls.folder, ignore_errors=True)
            cls.process = None


def session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JVM,
        "spark.executor.extraJavaOptions": JVM,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "OFF",
        "spark.python.daemon.module": "helpers.spark_daemon",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local-cluster[2,1,2048]").appName("thatch-cluster")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(folder: Path) -> None:
    spark = session(folder)
    try:
        report = asked_for_python(spark) | compared(spark, folder) | shipped(spark, folder)
    finally:
        spark.stop()
    (folder / "report.json").write_text(json.dumps(report))


def asked_for_python(spark: SparkSession) -> dict[str, Any]:
    """What the executors say, and the sentence where their Python does not exist."""
    from thatch.errors import CallerError
    from thatch.spark.workers import asked, check_workers

    workers = asked(spark.sparkContext, sys.executable)
    try:
        check_workers(spark.sparkContext, "no/such/python")
        sentence = ""
    except CallerError as error:
        sentence = str(error)
    return {"pythons": [worker.python for worker in workers], "without python": sentence}


def trades() -> Workload:
    """Few attributes, so that little has to be compiled on three machines."""
    random, symbols = Random(SEED), [f"SYM{place:04d}" for place in range(1000)]
    clauses = ["TRUE", "symbol IS NULL OR count > 900", "within(50, price, 500, count, 500)"]
    for _ in range(20):
        price, listed = random.randrange(1000), "', '".join(random.sample(symbols, 100))
        clauses += [f"price BETWEEN {price} AND {price + 20}", f"symbol IN ('{listed}') AND price < {price}"]
    schema = pa.schema(
        [("symbol", pa.string()), pa.field("price", pa.float64(), nullable=False), ("count", pa.int64())]
    )
    rows = [
        (random.choice([None, *symbols]), random.uniform(0, 1000), random.choice([None, *range(1000)]))
        for _ in range(500)
    ]
    events = pa.Table.from_arrays(list(map(pa.array, zip(*rows, strict=True))), schema=schema)
    space = Space.parse("symbol string, price double not null, count int")
    return Workload(space, events, {f"s{place}": plain(clause) for place, clause in enumerate(clauses)})


def compared(spark: SparkSession, folder: Path) -> dict[str, Any]:
    workload = trades()
    events = Events.of(spark, workload.events, folder)
    wanted = pairs_by_clauses(spark, workload.events, workload.spark_clauses)
    subscriptions = workload.subscriptions(spark)
    found = {}
    for way in FEW_WAYS:
        rows = way.match(events, subscriptions, workload.space).toArrow()
        found[way.name] = differences(pairs(rows), wanted, workload.our_clauses)
    context: Any = spark.sparkContext._jsc
    executors = context.sc().getExecutorMemoryStatus().size() - 1
    return {"executors": executors, "wanted": len(wanted), "differences": found}


def shipped(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """How the index gets to executors, and what becomes of it."""
    import thatch.spark as ts

    space = Space.parse("x double not null, y double not null")
    path = str(folder / "points")
    points = spark.range(0, 4000, 1, 4).selectExpr("id * 1D AS x", "id * 2D AS y")
    points.write.parquet(path)
    bounds = "id * 0.1D AS low_x, id * 0.1D + 5 AS high_x, id * 0.2D AS low_y, id * 0.2D + 9 AS high_y"
    subscriptions = spark.range(SUBSCRIPTIONS).selectExpr("id", *bounds.split(", "))
    report: dict[str, Any] = {
        name: {} for name in ("function bytes", "index bytes", "index folders", "index files later")
    }
    for strategy, events in (("arrow", points), ("files", path)):
        found = ts.match(events, subscriptions, space, strategy=strategy)
        report["function bytes"][strategy] = function_bytes(found)
        assert found.count() > 1000
        files = list(index_files(folder))
        report["index bytes"][strategy] = min(file.stat().st_size for file in files)
        report["index folders"][strategy] = [str(file.parent) for file in files]
        del found

        def gone() -> bool:
            # A worker lets go of a broadcast when it gets a task without it.
            spark.range(0, 8, 1, 8).mapInArrow(lambda batches: batches, "id long").count()
            return not list(index_files(folder))

        report["index files later"][strategy] = [] if within_seconds(20, gone) else list(map(str, index_files(folder)))
    return report


def function_bytes(frame: DataFrame) -> int:
    """The size of the pickled function in the plan of a mapInArrow."""
    node = frame._jdf.queryExecution().analyzed()
    while "InArrow" not in node.nodeName():
        node = node.children().head()
    return int(node.functionExpr().func().command().size())


def index_files(folder: Path) -> Iterator[Path]:
    """In the executors' working directories, or wherever else below the folder."""
    return folder.rglob("thatch-*")


def within_seconds(seconds: float, done: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
