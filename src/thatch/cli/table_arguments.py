"""What the commands over tables and files take: files of events and subscriptions, and how Spark runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

from thatch.cli.arguments import STDIN, add_delimiter, add_space, announce_stdin, delimiter_of, space_of
from thatch.cli.tabular import counted
from thatch.errors import CallerError

WEB = ("http", "https", "ftp")  # schemes that no file system reads
STORES = ("s3", "gs", "abfs", "wasb")  # and those that Spark reads only with a file system of theirs


def add_where(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--where",
        action="append",
        required=True,
        metavar="FILE",
        help="rules: a clause a line, # starts a comment line, the id is FILE:LINE, - is stdin; or a .yaml, .toml, "
        ".json, .csv or .parquet file with id and where, or with id and bounds low_NAME, high_NAME. May be given "
        "several times",
    )
    reading = command.add_argument_group("reading")
    reading.add_argument(
        "--input-format", choices=("parquet", "csv", "json"), help="default: by the names of the files"
    )
    add_delimiter(reading)
    reading.add_argument(
        "--multiline", action="store_true", help="records may span lines: breaks within quotes, JSON in an array"
    )


def add_rules(command: argparse.ArgumentParser, output: str) -> None:
    """What the commands about subscriptions have in common."""
    add_space(command, required=False)
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
    from thatch.local.files import Format

    check_places(options)
    return {
        "space": None if options.space is None else space_of(options.space, options.time_zone),
        "time_zone": options.time_zone or "UTC",
        "where": options.where,
        "events": options.events,
        "reading": Format(options.input_format, delimiter_of(options.delimiter), options.multiline),
        "skip": options.on_error == "skip",
        "output": options.output,
        "overwrite": options.overwrite,
    }


def check_places(options: argparse.Namespace) -> None:
    """Refuse what can never be read or written, before anything is opened."""
    asked_for_spark = options.engine == "spark" or options.master or options.conf
    for path in (*options.events, *options.where):
        scheme = re.match(r"(\w+)://", path)
        if scheme and scheme[1].lower() in WEB:
            raise CallerError(f"{path} cannot be read: download the file, and give its path")
        if scheme and scheme[1].lower() in STORES and not asked_for_spark:
            hint = "download the file, or read it with --engine spark and the file system of this store"
            raise CallerError(f"{path} cannot be read: {hint} (docs/packaging.md)")
    if STDIN in options.events:
        raise CallerError("events are not read from standard input: give a file, a folder or a glob")
    if options.output is not None and not options.output.strip():
        raise CallerError("--output is the path of a folder, not ''")
    announce_stdin(options.where)


def skipped_text(result: Mapping[str, Any]) -> list[str]:
    """A line about rules that are left out, if some are."""
    count = result.get("skipped", 0)
    return [f"left out {counted(count, 'wrong rule')}: `thatch validate` lists them"] if count else []


def seconds_text(result: Mapping[str, Any]) -> str:
    """How long it took, for a summary."""
    starting = result.get("seconds_to_start_spark")
    return f"in {result['seconds']:.1f} s" + ("" if starting is None else f", after {starting:.1f} s to start Spark")
