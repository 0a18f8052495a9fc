"""Which engine does the work: this process, or Spark."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

from thatch.cli.engine import Engine
from thatch.cli.local_jobs.engine import LocalEngine
from thatch.cli.request import Request
from thatch.cli.spark_jobs.engine import SparkEngine
from thatch.cli.tabular import megabytes
from thatch.errors import CallerError
from thatch.local.files import Format, files_in, has_scheme, one_kind
from thatch.local.rule_files import STDIN

MASTER = re.compile(r"local(-cluster)?(\[[^\]]+\])?|yarn|(spark|k8s)://.+")  # of Spark
LOCAL_BYTES_MAX = 2 * 2**30  # of files, that `auto` leaves to this process


def add_engine(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--engine",
        choices=("auto", "local", "spark"),
        default="auto",
        help="local: in this process, without Java; spark; auto (default): local for local files of "
        f"up to {LOCAL_BYTES_MAX // 2**30} GB, if nothing about Spark is said",
    )


def chosen_engine(options: argparse.Namespace, request: Request) -> tuple[Engine, str]:
    """The engine, and why."""
    name, why = _choice(options, request.events, request.where, request.reading)
    if name == "local":
        of_spark = [each for each in ("master", "conf") if getattr(options, each)]
        of_spark += ["strategy"] if getattr(options, "strategy", "auto") != "auto" else []
        if of_spark:
            raise CallerError(f"--{of_spark[0]} is for --engine spark")
        return LocalEngine(options.is_program), why
    if options.master is not None and not MASTER.fullmatch(options.master):
        raise CallerError(
            f"--master is local[*], yarn, spark://HOST:PORT or k8s://https://HOST:PORT, not {options.master!r}"
        )
    return SparkEngine(options.master, dict(_setting(each) for each in options.conf)), why


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise CallerError(f"--conf is KEY=VALUE, not {text!r}")
    return name, value


def _choice(
    options: argparse.Namespace, events: Sequence[str], rules: Sequence[str], reading: Format
) -> tuple[str, str]:
    if options.engine != "auto":
        return options.engine, "it was asked for"
    if options.master or options.conf:
        return "spark", "a master or a setting of Spark was given"
    if getattr(options, "strategy", "auto") != "auto":
        return "spark", "a strategy of Spark was given"
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        if name in os.environ:
            return "spark", f"{name} is set"
    size = 0
    for path in (*events, *(each for each in rules if each != STDIN)):
        if has_scheme(path):
            return "spark", f"{path} is not a local path"
        try:
            files = files_in([path])
            is_json = path in events and one_kind([path], reading) == "json"
        except CallerError:
            continue  # the engine says what is wrong with it
        if is_json and reading.multiline:
            return "spark", f"{path} is JSON over several lines, which only Spark reads"
        if any("=" in part for file in files for part in os.path.relpath(file, path).split(os.sep)[:-1]):
            return "spark", f"{path} is partitioned by folders"
        size += sum(map(os.path.getsize, files))
    if size > LOCAL_BYTES_MAX:
        return "spark", f"{megabytes(size)} of files are more than {megabytes(LOCAL_BYTES_MAX)}"
    return "local", f"{megabytes(size)} of local files"
