"""What the commands over tables and files take: files of events and subscriptions, and how Spark runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from thatch.cli.arguments import add_space, space_of
from thatch.cli.tabular import counted


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
    reading.add_argument("--delimiter", default=",", metavar="CHARACTER", help="of CSV (default: a comma)")
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

    return {
        "space": None if options.space is None else space_of(options.space, options.time_zone),
        "time_zone": options.time_zone or "UTC",
        "where": options.where,
        "events": options.events,
        "reading": Format(options.input_format, options.delimiter, options.multiline),
        "skip": options.on_error == "skip",
        "output": options.output,
        "overwrite": options.overwrite,
    }


def skipped_text(result: Mapping[str, Any]) -> list[str]:
    """A line about rules that are left out, if some are."""
    count = result.get("skipped", 0)
    return [f"left out {counted(count, 'wrong rule')}: `thatch validate` lists them"] if count else []


def seconds_text(result: Mapping[str, Any]) -> str:
    """How long it took, for a summary."""
    starting = result.get("seconds_to_start_spark")
    return f"in {result['seconds']:.1f} s" + ("" if starting is None else f", after {starting:.1f} s to start Spark")
