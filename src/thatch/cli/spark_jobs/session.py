"""A Spark session for a command: the one that is there, or one that is started quietly and stopped again.

What the JVM and its workers write to stderr goes to a file without a name, and is shown only if Spark cannot start.
What a person needs to know of a failure comes back as an exception; `sentence_of` finds the sentence in it."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

from thatch.cli.terminal import clear_progress, show_progress
from thatch.errors import CallerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
DAEMON = "thatch.cli.spark_jobs.daemon"
LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")  # of PySpark: stack traces of what is raised anyway
SHOWN_AFTER = 1.0  # seconds: short work shows no progress


def check_spark_is_there() -> None:
    """Says what to install if PySpark or Java is missing."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise CallerError("this needs PySpark: pip install 'thatch[spark]'") from None
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if "PYSPARK_GATEWAY_PORT" not in os.environ and shutil.which(java) is None:
        where = f"JAVA_HOME is {home!r}, which has no bin/java" if home else "there is no `java` on the PATH"
        raise CallerError(f"Spark needs Java 17 or later: {where}. Install it: apt-get install openjdk-17-jre-headless")


@contextmanager
def spark_session(
    time_zone: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session in this time zone. One that is active already lends its context, with settings of its own, and goes on
    afterwards; `master` then has no say."""
    check_spark_is_there()
    wanted = _of_query(time_zone, settings or {})
    lent = _lent(wanted)
    if lent is not None:
        yield lent
        return
    session = _started(master, wanted, settings)
    try:
        yield session
    finally:
        session.stop()


class SessionAhead:
    """A local session that starts in the background, with workers that have loaded what matching needs, while this
    thread does something else. If a session is active already, there is nothing to start."""

    def __init__(self, time_zone: str, settings: Mapping[str, str]) -> None:
        check_spark_is_there()
        from pyspark.sql import SparkSession

        self._time_zone, self._settings = time_zone, settings
        self._found: Future[SparkSession] | None = None
        if SparkSession.getActiveSession() is None:
            self._found = Future()
            threading.Thread(target=self._start, daemon=True).start()

    def _start(self) -> None:
        assert self._found is not None
        try:
            session = _started(None, _of_query(self._time_zone, self._settings))
            start_workers(session)
            self._found.set_result(session)
        except BaseException as error:
            self._found.set_exception(error)

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Waits for the session, and stops it afterwards if it was started here."""
        from pyspark.sql import SparkSession

        if self._found is None:
            with spark_session(self._time_zone, settings=self._settings) as session:
                yield session
            return
        session = SparkSession(self._found.result().sparkContext)
        try:
            yield session
        finally:
            session.stop()


def start_workers(session: SparkSession) -> None:
    """Has Spark fork a Python worker for each core, by a job that does nothing else."""
    from thatch.spark.failures import map_batches

    cores = session.sparkContext.defaultParallelism
    map_batches(session.range(0, cores, 1, cores), lambda batches: batches, "id long").toArrow()


def _of_query(time_zone: str, settings: Mapping[str, str]) -> dict[str, str]:
    return {**settings, "spark.sql.session.timeZone": time_zone, "spark.sql.ansi.enabled": "true"}


def _lent(settings: Mapping[str, str]) -> SparkSession | None:
    """A new session in the context of the active one, if there is one."""
    from pyspark.sql import SparkSession

    for each in LOGGERS:
        logging.getLogger(each).disabled = True
    active = SparkSession.getActiveSession()
    if active is None:
        return None
    session = active.newSession()
    for name, value in settings.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


def _started(master: str | None, settings: Mapping[str, str], named: Mapping[str, str] | None = None) -> SparkSession:
    """`named`: the settings among these that a person gave."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    # Else Spark notes for every column where in our code it was made, which takes longer than to make it.
    quiet["spark.python.sql.dataFrameDebugging.enabled"] = "false"
    conf = SparkConf().setAppName("thatch").setAll(list({**quiet, **settings}.items()))
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit knows the master
        master = "local[*]"
    if master is not None:
        conf.setMaster(master)
    if master is not None and master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # also where the host has no name of its own
        if not conf.contains("spark.driver.bindAddress"):
            conf.set("spark.driver.bindAddress", LOOPBACK)
        if not conf.contains("spark.python.daemon.module"):
            conf.set("spark.python.daemon.module", DAEMON)
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # py4j logs what it was doing when Ctrl-C came; without a handler, that would go to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    with tempfile.TemporaryFile() as noise:
        try:
            gateway: Any = SparkContext._gateway  # of a session that was stopped
            if gateway is None:
                gateway = launch_gateway(conf, {"stdout": noise, "stderr": noise})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            given = "".join(f" --conf {name}={value}" for name, value in (named or {}).items())
            blamed = f" (given{given})" if given else ""
            raise CallerError(f"Spark cannot start: {_last_words(noise) or sentence_of(error)}{blamed}") from None
    # PySpark's handler talks to the JVM in the middle of another conversation.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return SparkSession(context)


def _last_words(noise: IO[bytes]) -> str:
    """What a JVM that would not start has said."""
    lines = os.pread(noise.fileno(), 1 << 20, 0).decode(errors="replace").splitlines()
    errors = [line for line in lines if re.search(r"error|exception|unsupported|invalid", line, re.IGNORECASE)]
    stack = re.compile(r"\s+at |\s*\.\.\. \d+ more")
    line = next((line.strip() for line in errors if not stack.match(line)), "")
    return re.sub(r'^(?:Exception in thread "[^"]*" )?(?:[\w.$]+(?:Exception|Error): )*', "", line)


def sentence_of(error: BaseException) -> str:
    """What an exception says to a person: ours, or the message of its innermost cause, without stack traces."""
    from thatch.spark.failures import ours

    known = ours(error)
    if known is not None:
        return str(known)
    inner = _innermost(error)
    scheme = re.search(r'No FileSystem for scheme "?(\w+)|Class org\.apache\.hadoop\.fs\.(\w+)\.\S+ not found', inner)
    if scheme:
        name = scheme[1] or scheme[2]
        return (
            f"this Spark has no file system for {name}://: docs/packaging.md says how to add one, or download the files"
        )
    text = re.split(r"\n\s*(?:at |JVM stacktrace|== |\n)", inner.strip())[0]
    unread = re.search(r"(?:reading file|read footer for file:?\S*|path=)\s*(file:\S+?\.\w+)", f"{error} {inner}")
    if unread and not text.startswith("CSV header"):  # of files that are whole, and differ
        return f"{unquote(urlparse(unread[1]).path)}: cannot be read: it is damaged, or another kind of file"
    text = re.sub(r"^(?:[\w.$]+(?:Exception|Error): )*(?:\[[A-Z_.0-9]+\] )?", "", text)
    return re.sub(r"\s*SQLSTATE: \w+\s*$", "", text).strip() or type(error).__name__


def _innermost(error: BaseException) -> str:
    """The message of the last cause in the JVM that has one."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = str(error)
    while cause is not None:
        text = cause.getMessage() or text
        cause = cause.getCause()
    return text


@contextmanager
def progress(session: SparkSession) -> Iterator[None]:
    """On a terminal, tasks done of all that are known; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_count_tasks, args=(session, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        clear_progress()


def _count_tasks(session: SparkSession, over: threading.Event) -> None:
    tracker, start = session.sparkContext.statusTracker(), time.monotonic()
    while not over.wait(0.25):
        seconds = time.monotonic() - start
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done, tasks = (sum(getattr(s, f) for s in stages if s) for f in ("numCompletedTasks", "numTasks"))
        if seconds > SHOWN_AFTER:
            text = f"{done:,} of {tasks:,} tasks, " if tasks else ""  # between two jobs there are none
            show_progress(f"{text}{seconds:.0f} s")
