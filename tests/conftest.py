from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
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


# What pytest-xdist deals out, and in which order. Every test on Spark goes to one worker, so that there is one session;
# its file has "spark" in its name. The other files go to a worker as a whole, since their tests share oracles; only the
# seeds share nothing.
SPREAD = "tests/sim/test_sim_seeds.py"
LONG = ("sim", "cover", "node", "broker", "region", "matching")  # folders whose files are dealt out first


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::")[0]
            return "spark" if "spark" in path.split("/")[-1] else nodeid if path == SPREAD else path

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="one case of each short test, without Spark and sockets")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.quick:
        os.environ["THATCH_QUICK"] = "1"  # read by helpers/strategies.py


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spark takes longest, so it comes first: in it first the tests that need no session, which is starting meanwhile,
    and last those that ask a process in the background."""
    for item in items:
        if _needs_session(item) and not _is_spark(item):
            raise pytest.UsageError(f"{item.nodeid} needs Spark: put 'spark' into the name of its file")
    items.sort(key=_place)
    if not os.environ.get("THATCH_SOAK") and set(config.args) == set(config.getini("testpaths")):
        black = _black(items)
        config.hook.pytest_deselected(items=[item for item in items if item in black])
        items[:] = [item for item in items if item not in black]
    if config.option.quick:
        chosen = {item.nodeid.split("[")[0]: item for item in reversed(items) if _is_quick(item)}  # the first case
        quick = set(chosen.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in quick])
        items[:] = [item for item in items if item in quick]


def _black(items: list[pytest.Item]) -> set[pytest.Item]:
    """What the whole suite leaves out: what is marked so, and of the combinations of several parameters every second
    one, as on a chessboard: each engine meets half of the cases, and each case half of the engines. `make soak`, and
    whoever names a file, runs all."""
    seen: dict[tuple[str, int], dict[str, int]] = {}  # the values of each parameter of a test, numbered
    black = set()
    for item in items:
        numbers = []
        for place, value in enumerate(_values(item)):
            known = seen.setdefault((item.nodeid.split("[")[0], place), {})
            numbers.append(known.setdefault(value, len(known)))
        if (len(numbers) > 1 and sum(numbers) % 2) or _is_soak(item):
            black.add(item)
    return black


def _values(item: pytest.Item) -> Sequence[str]:
    """Those of its parameters, as its name has them."""
    return getattr(getattr(item, "callspec", None), "_idlist", ())


def _is_soak(item: pytest.Item) -> bool:
    """Whether it has the mark `soak`, without arguments or with the value of one of its parameters."""
    mark = item.get_closest_marker("soak")
    return mark is not None and (not mark.args or bool({*mark.args} & {*_values(item)}))


def _is_quick(item: pytest.Item) -> bool:
    has_sockets = item.path.parent.name in ("node", "client")
    return not (_is_spark(item) or has_sockets or item.get_closest_marker("long"))


def _place(item: pytest.Item) -> tuple[int, int]:
    if _is_spark(item):
        return 0, 2 if item.get_closest_marker("background") else int(_needs_session(item))
    folder = item.path.parent.name
    return 1, LONG.index(folder) if folder in LONG else len(LONG)


def _is_spark(item: pytest.Item) -> bool:
    return "spark" in item.path.name


def _needs_session(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def pytest_collection_finish(session: pytest.Session) -> None:
    # A tenth of the time went into looking for garbage among what stays: modules, tests, whatever Numba keeps.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    Starting.has_session = any(map(_needs_session, session.items))
    Starting.has_cluster = any(item.path.name == "test_spark_cluster.py" for item in session.items)


@pytest.fixture(scope="module", autouse=True)
def _few_to_look_through() -> None:
    """What the files before keep (oracles, compiled clauses) is not looked through again whenever a test has garbage
    collected: that took a second, and some tests do it for each case."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _is_spark(item):
        Starting.begin()


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
    """Spark, from when the first test of its group begins."""

    has_begun = False
    session: Future[SparkSession] | None = None
    has_session = False  # whether a test needs it
    has_cluster = False

    @classmethod
    def begin(cls) -> None:
        if cls.has_begun or not find_spec("pyspark"):
            return
        cls.has_begun = True
        if cls.has_session:
            cls.session = ThreadPoolExecutor(1).submit(_started)
        if cls.has_cluster:
            from helpers.spark_cluster import Cluster

            Cluster.start()


# A test run is over before the JVM's second compiler has paid for itself. Its classes come from Spark's own package, so
# that nobody need verify them, and it never has to stop because classes or short-lived objects want more room.
JVM = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+UnlockDiagnosticVMOptions"),
    *("-XX:-BytecodeVerificationRemote", "-XX:MetaspaceSize=400m", "-Xms1g", "-Xmn640m"),
)


def _started() -> SparkSession:
    """A small local Spark, as strict as ours: ANSI on, time zone UTC. Plans are interpreted, for the same reason as
    above, but for `make soak`; those of test_spark_cluster.py are compiled."""
    from thatch.cli.spark_jobs import session

    paths = (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # where workers find helpers/spark_daemon.py
    settings = {
        "spark.driver.extraJavaOptions": " ".join(JVM),
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

    assert Starting.session is not None
    session = SparkSession(Starting.session.result().sparkContext)
    session.createDataFrame([], "nothing int")  # makes it the active one in this thread, too
    yield session
    session.stop()
