"""`thatch simulate` and `thatch plan`: what they take, and how they are called."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thatch.cli.arguments import OK, add_files, clauses_of, space_of
from thatch.errors import CallerError

if TYPE_CHECKING:
    from thatch.broker import Policy


def add_overlay_commands(commands: Any) -> None:
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
        help="what would be sent if a subscription left, or came, or the policy changed",
        description="A dry run. For clauses (--space, and CLAUSE or --file): one broker that has them all, and one "
        "neighbour. For a scenario of the simulator (--scenario): its whole overlay, under its policy and others.",
        epilog="example: thatch plan --space 'price int' --file rules.txt --unsubscribe rules.txt:7",
    )
    _add_plan(plan)
    plan.set_defaults(run=_plan)
    for command in (simulate, plan):
        command.add_argument("--json", action="store_true", help="print JSON")


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
        "--events-first",
        action="store_true",
        help="events overtake the other messages between brokers (default: in order)",
    )
    command.add_argument(
        "--replacements-per-second-max",
        type=float,
        metavar="N",
        help=f"forwarded a second in place of a subscription that leaves by --theta; 0: all at once {own}",
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
        help="a wider subscription retracts the narrower ones sent before; `union`: also those it covers with others",
    )
    command.add_argument("--graph", help="pairwise covering by a relation graph: traditional or simplified")
    command.add_argument(
        "--packed", action="store_true", help="an unsubscription carries its replacements in one message"
    )
    command.add_argument(
        "--theta",
        type=float,
        metavar="SHARE",
        help="incremental: preserve a subscription that leaves where others want more than this share of its events",
    )
    command.add_argument(
        "--merge",
        type=float,
        metavar="SHARE",
        help="forward several subscriptions as one, adding at most this share; 0: perfectly",
    )


def _policy(options: argparse.Namespace) -> Policy:
    from thatch.broker import Policy

    cover = None if options.cover == "none" else options.cover
    return Policy(
        cover, options.retract, options.graph, packed=options.packed, theta=options.theta, merge=options.merge
    )


def _simulate(options: argparse.Namespace) -> int:
    from thatch.cli.simulate import simulate
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
        options.routing, options.costs, options.seed,
        replacements_per_second_max=options.replacements_per_second_max, events_first=options.events_first,
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
    add_files(command)
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
    from thatch.cli.plan import Act, as_json, plan_of_clauses, plan_of_scenario
    from thatch.cli.simulate import run_to_end
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
        space = space_of(options.space, options.time_zone)
        plans = plan_of_clauses(clauses_of(options.clauses, options.file), space, _policy(options), act)
    print(json.dumps(as_json(plans)) if options.json else "\n".join(map(str, plans)))
    return OK
