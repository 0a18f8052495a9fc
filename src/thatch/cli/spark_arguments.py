"""What the commands on Spark take: files of events and subscriptions, and how Spark runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from thatch.cli.arguments import add_space, clauses_of, counted_up, space_of
from thatch.errors import CallerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def add_where(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--where",
        action="append",
        required=True,
        metavar="FILE",
        help="clauses, one a line, # starts a comment line, the id is FILE:LINE, - is stdin; or a table (.parquet, "
        ".csv, .json) of id and where, or of id and bounds low_NAME, high_NAME. May be given several times",
    )
    reading = command.add_argument_group("reading")
    reading.add_argument(
        "--input-format", choices=("parquet", "csv", "json"), help="default: by the names of the files"
    )
    reading.add_argument("--delimiter", default=",", metavar="CHARACTER", help="of CSV (default: a comma)")
    reading.add_argument(
        "--multiline", action="store_true", help="records may span lines: breaks within quotes, JSON in an array"
    )


def add_rules(command: argparse.ArgumentParser, output: str, needs_space: bool = True) -> None:
    """What the commands about subscriptions have in common."""
    add_space(command, needs_space)
    add_where(command)
    command.add_argument("--output", metavar="PATH", help=output)
    command.add_argument("--overwrite", action="store_true", help="replace an output that exists")
    command.add_argument(
        "--on-error",
        choices=("fail", "skip"),
        default="fail",
        help="what to do with wrong clauses and with events that have a bad value: fail (default), or leave them out",
    )
    add_running(command)


def add_running(command: argparse.ArgumentParser) -> Any:
    running = command.add_argument_group("running")
    running.add_argument("--master", metavar="URL", help="of Spark (default local[*]: all cores of this machine)")
    running.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given several times",
    )
    return running


def request_fields(options: argparse.Namespace) -> dict[str, Any]:
    """What all commands on Spark take, as fields of a request."""
    from thatch.local.files import Format, is_table

    space = None if options.space is None else space_of(options.space, options.time_zone)
    lines = [name for name in options.where if not is_table(name)]
    return {
        "space": space,
        "clauses": list(counted_up(clauses_of([], lines))),
        "tables": [name for name in options.where if is_table(name)],
        "events": options.events,
        "reading": Format(options.input_format, options.delimiter, options.multiline),
        "skip": options.on_error == "skip",
        "output": options.output,
        "overwrite": options.overwrite,
    }


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise CallerError(f"--conf is KEY=VALUE, not {text!r}")
    return name, value


def on_spark(options: argparse.Namespace, time_zone: str, work: Callable[[SparkSession], T]) -> tuple[T, float]:
    """What some work returns that needs a session, and the seconds that Spark took to start."""
    from thatch.cli.spark_jobs.session import spark_session

    settings = dict(_setting(each) for each in options.conf)
    start = time.perf_counter()
    with spark_session(time_zone, options.master, settings) as session:
        starting = time.perf_counter() - start
        return work(session), starting


def seconds_text(result: Mapping[str, Any]) -> str:
    """How long it took, for a summary."""
    starting = result.get("seconds_to_start_spark")
    return f"in {result['seconds']:.1f} s" + ("" if starting is None else f", after {starting:.1f} s to start Spark")
