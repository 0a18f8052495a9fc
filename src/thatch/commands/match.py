"""`thatch match`: files of events, files of subscriptions, and the pairs in files again or on the terminal."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from thatch.commands.inputs import Events, Format, Subscriptions, has_scheme, read_subscriptions
from thatch.commands.session import is_ours, progress, told
from thatch.errors import CallerError
from thatch.space import Space
from thatch.spark import Plan, wrong_clauses
from thatch.spark.match import Job
from thatch.spark.text import name_sql

SHOWN = 10  # matches, where there is no output
PATIENCE = 10.0  # seconds, for a job that is cancelled
NAMED = 3  # clauses or events that an error names
WRITING: dict[str, dict[str, Any]] = {
    "parquet": {},
    "csv": {"header": True, "escape": '"'},
    "json": {"ignoreNullFields": False},
}


@dataclass(frozen=True)
class Request:
    """What is to be matched, and how."""

    events: Sequence[str]
    space: Space
    clauses: Sequence[tuple[str, str]] = ()  # id and text
    tables: Sequence[str] = ()
    reading: Format = field(default_factory=Format)
    strategy: str = "auto"
    skip: bool = False
    output: str | None = None
    writing: str | None = None  # the kind of the output; None: by its name, or Parquet
    skipped: str | None = None
    overwrite: bool = False

    @property
    def output_kind(self) -> str:
        named = re.search(r"\.(parquet|csv|json)/?$", self.output or "")
        return self.writing or (named[1] if named else "parquet")

    @property
    def skipped_path(self) -> str:
        """Where rows go that are left out: beside the output."""
        return self.skipped or (f"{self.output.rstrip('/')}.skipped" if self.output else "thatch-skipped")

    @property
    def skipped_kind(self) -> str:
        return self.output_kind if self.output or self.writing else "json"


def explained(session: SparkSession, request: Request) -> Plan:
    """The plan, and nothing done."""
    with _failures_told(None, None, request.space):
        events, subscriptions = _inputs(session, request)
        with _failures_told(None if request.skip else events, subscriptions, request.space), progress(session):
            return _job(events, subscriptions, request).plan()


def run(session: SparkSession, request: Request) -> dict[str, Any]:
    """Match; what the summary says."""
    start = time.perf_counter()
    with _failures_told(None, None, request.space):
        events, subscriptions = _inputs(session, request)
        outputs = _outputs(session, request)
        for each in outputs.values():
            each.refuse_to_lose([*events.read.inputFiles(), *subscriptions.frame.inputFiles()])
    with _failures_told(None if request.skip else events, subscriptions, request.space), progress(session):
        job = _job(events, subscriptions, request)
        plan = job.plan(estimate=False)
        wrong, unread = _skip_clauses(subscriptions, request.space, outputs["clauses"]) if request.skip else (0, 0)
        matches, first = _matched(job.result(), outputs.get("matches"))
        total, bad = _skip_events(events, outputs["events"]) if request.skip else (events.read.count(), 0)
    result: dict[str, Any] = {
        "events": total,
        "subscriptions": plan.subscriptions + unread,
        "matches": matches,
        "skipped": {"events": bad, "clauses": wrong},
        "seconds": time.perf_counter() - start,
        "strategy": plan.strategy,
        "reason": plan.reason,
    }
    if bad or wrong:
        result["skipped"]["path"] = request.skipped_path
    if request.output:
        result["output"] = request.output
    else:
        result["first"] = first
    return result


def _inputs(session: SparkSession, request: Request) -> tuple[Events, Subscriptions]:
    events = Events(session, request.events, request.space, request.reading)
    tables = request.tables
    return events, read_subscriptions(session, request.clauses, tables, request.space, request.reading)


def _outputs(session: SparkSession, request: Request) -> dict[str, _Output]:
    places = {"matches": (request.output, request.output_kind)} if request.output else {}
    if request.skip:
        folder = request.skipped_path.rstrip("/")
        places |= {name: (f"{folder}/{name}", request.skipped_kind) for name in ("events", "clauses")}
    return {name: _Output(session, path, kind, request.overwrite) for name, (path, kind) in places.items()}


def _job(events: Events, subscriptions: Subscriptions, request: Request) -> Job:
    if subscriptions.malformed is not None and not request.skip:
        _refuse(_named(subscriptions.malformed))
    on_error = "skip" if request.skip else "raise"
    return Job(
        events.usable(request.skip),
        subscriptions.frame,
        request.space,
        request.strategy,
        on_error,
        broadcast_limit=None,
    )


def _matched(matches: DataFrame, output: _Output | None) -> tuple[int, list[dict[str, Any]]]:
    """How many there are, and without an output the first of them: one pass."""
    count = Observation()
    if output is not None:
        output.write(matches.observe(count, F.count(F.lit(1)).alias("matches")))
        return count.get.get("matches", 0), []
    # The number of a row within its partition: the first of each partition come to the driver, all are counted.
    numbered = matches.select(
        *[_plain(matches, name) for name in matches.columns], F.monotonically_increasing_id().alias("__row")
    )
    observed = numbered.observe(count, F.count(F.lit(1)).alias("matches"))
    rows = observed.where(F.col("__row").bitwiseAND(F.lit((1 << 33) - 1)) < SHOWN).drop("__row").collect()
    return count.get.get("matches", 0), [row.asDict() for row in rows[:SHOWN]]


def _plain(frame: DataFrame, name: str) -> Any:
    """What has no plain form in JSON is text, times in the zone of the session."""
    kind, column = frame.schema[name].dataType.typeName(), F.col(name_sql(name))
    if kind == "binary":
        column = F.hex(column)
    elif kind not in ("string", "boolean", "byte", "short", "integer", "long", "float", "double"):
        column = column.cast("string")
    return column.alias(name)


# What is left out


def _skip_clauses(subscriptions: Subscriptions, space: Space, output: _Output) -> tuple[int, int]:
    """How many subscriptions cannot be used, and how many of them could not even be read."""
    wrong, malformed = _wrong(subscriptions, space), subscriptions.malformed
    counts = (0 if wrong is None else wrong.count()), (0 if malformed is None else malformed.count())
    if wrong is not None and counts[0]:
        output.write(wrong)
    else:
        output.remove()
    return counts


def _wrong(subscriptions: Subscriptions, space: Space) -> DataFrame | None:
    """The subscriptions that cannot be used: id, where, line, column, error."""
    if "where" not in subscriptions.frame.columns:
        return subscriptions.malformed
    wrong = wrong_clauses(subscriptions.frame, space)
    wrong = wrong.withColumn("id", F.col("id").cast("string"))
    return wrong if subscriptions.malformed is None else wrong.union(subscriptions.malformed)


def _skip_events(events: Events, output: _Output) -> tuple[int, int]:
    """How many events there are, and how many are bad."""
    judged, error = events.judged(), F.col(name_sql(events.error_name))
    row = judged.agg(F.count(F.lit(1)), F.count(error)).first()
    assert row is not None
    if row[1]:
        output.write(judged.where(error.isNotNull()))
    else:
        output.remove()
    return row[0], row[1]


# What goes wrong


@contextmanager
def _failures_told(events: Events | None, subscriptions: Subscriptions | None, space: Space) -> Iterator[None]:
    """Failures of Spark as one sentence. If events are given, those of clauses and events with the place of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left out is in the summary
        try:
            yield
        except (CallerError, PySparkException, Py4JError) as error:
            told_of_clauses = isinstance(error, CallerError) and str(error).startswith("subscription ")
            raised_there = not isinstance(error, CallerError) and is_ours(error)
            if events is not None and subscriptions is not None and (told_of_clauses or raised_there):
                wrong = _wrong(subscriptions, space)
                _refuse([] if wrong is None else _named(wrong))
                _refuse(events.first_bad(NAMED + 1) if raised_there else [])
            raise error if isinstance(error, CallerError) else CallerError(told(error)) from None


def _named(wrong: DataFrame) -> list[str]:
    lines = []
    for row in wrong.take(NAMED + 1):
        place = "" if row["line"] is None else f"line {row['line']}, column {row['column']}: "
        text = "" if row["where"] is None else "\n    " + row["where"][:200].replace("\n", "\n    ")
        lines.append(f"subscription {'?' if row['id'] is None else row['id']}: {place}{row['error']}{text}")
    return lines


def _refuse(named: list[str]) -> None:
    if named:
        more = "\nand more" if len(named) > NAMED else ""
        listed = "\n".join(named[:NAMED])
        raise CallerError(f"{listed}{more}\nCorrect them, or leave them out with --on-error skip")


class _Output:
    """A folder that Spark writes: all of it or nothing, and what was there before stays until then."""

    def __init__(self, session: SparkSession, path: str, kind: str, overwrite: bool) -> None:
        self._name, self._kind = path if has_scheme(path) else os.path.abspath(path), kind
        self._shown = path
        self._context = session.sparkContext
        jvm: Any = self._context._jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        java_session: Any = session._jsparkSession
        self._files: Any = self._path(self._name).getFileSystem(java_session.sessionState().newHadoopConf())
        if self._exists() and not overwrite:
            raise CallerError(f"{path} exists already: choose another path, or give --overwrite")
        if self._exists() and not self._files.exists(self._path(f"{self._name}/_SUCCESS")):
            raise CallerError(
                f"{path} was not written by Spark (it has no _SUCCESS): remove it, or choose another path"
            )

    def refuse_to_lose(self, inputs: Sequence[str]) -> None:
        """What is read must not be written over."""
        own = self._files.makeQualified(self._path(self._name)).toUri().getPath()
        for each in inputs:
            path = unquote(urlparse(each).path)
            if path == own or path.startswith(f"{own}/"):
                raise CallerError(f"{self._shown} holds {path}, which is read: choose another path")

    def write(self, frame: DataFrame) -> None:
        token = secrets.token_hex(8)
        part = f"{self._name}.{token}.part" if self._exists() else self._name
        self._context.setJobGroup(token, f"thatch match: {self._shown}", interruptOnCancel=True)
        try:
            frame.write.format(self._kind).options(**WRITING[self._kind]).save(part)
        except BaseException:
            # In a thread of its own: an interrupted one is left in the middle of a conversation with the JVM.
            undo = threading.Thread(target=self._undo, args=(part, token))
            undo.start()
            undo.join()
            raise
        finally:
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        if part != self._name:
            self.remove()
            self._files.rename(self._path(part), self._path(self._name))

    def _undo(self, part: str, group: str) -> None:
        """Tasks of a job that has failed or is cancelled may go on for a moment, and make their folders anew."""
        self._context.cancelJobGroup(group)
        gone, patience = 0, time.monotonic() + PATIENCE
        while gone < 5 and time.monotonic() < patience:
            gone = 0 if self._files.delete(self._path(part), True) else gone + 1
            time.sleep(0.2)

    def remove(self) -> None:
        self._files.delete(self._path(self._name), True)

    def _exists(self) -> bool:
        return bool(self._files.exists(self._path(self._name)))
