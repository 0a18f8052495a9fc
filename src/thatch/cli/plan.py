"""`thatch plan`: what would be sent, before it is done."""

from __future__ import annotations

import argparse
import json
from typing import Any

from thatch.cli.arguments import OK, add_files, add_json, clauses_of, named_clauses, space_of
from thatch.cli.overlay_arguments import add_policy, check_sizes, policy_of
from thatch.cli.parser import number, whole_number
from thatch.errors import CallerError


def add(commands: Any) -> None:
    command = commands.add_parser(
        "plan",
        help="what would be sent if a subscription left, or came, or the policy changed",
        description="A dry run. For clauses (--space, and CLAUSE or --file): one broker that has them all, and one "
        "neighbour. For a scenario of the simulator (--scenario): its whole overlay, under its policy and others.",
        epilog="example: thatch plan --space 'price int' --file rules.txt --unsubscribe rules.txt:7",
    )
    _add_arguments(command)
    add_json(command)
    command.set_defaults(run=run)


def _add_arguments(command: argparse.ArgumentParser) -> None:
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
    command.add_argument("--to-merge", type=number, metavar="SHARE")
    add_policy(command)
    overlay = command.add_argument_group("of a scenario")
    overlay.add_argument("--scenario", metavar="NAME", help="see `thatch simulate`")
    overlay.add_argument("--subscriptions", type=whole_number)
    overlay.add_argument("--degree", type=whole_number)
    overlay.add_argument("--events", type=whole_number)
    overlay.add_argument("--seed", type=whole_number, default=0)


def run(options: argparse.Namespace) -> int:
    from thatch.broker import Policy
    from thatch.cli.planned import Act, as_json, plan_of_clauses, plan_of_scenario
    from thatch.cli.simulated import run_to_end
    from thatch.sim.scenarios import Options

    _check_together(options)
    to = None
    if options.to_cover is not None:
        cover = None if options.to_cover == "none" else options.to_cover
        to = Policy(cover, options.to_retract, merge=options.to_merge)
    act = Act(options.unsubscribe, options.subscribe, to)
    if options.scenario is not None:
        sizes = Options(options.subscriptions, options.degree, options.events, policy=policy_of(options), costs="free",
                        seed=options.seed)  # fmt: skip
        plans = plan_of_scenario(options.scenario, sizes, act, run_to_end)
    elif options.space is None:
        raise CallerError("thatch plan needs clauses and --space, or --scenario NAME")
    elif act == Act():
        raise CallerError("what should be planned? Give --unsubscribe ID, --subscribe CLAUSE or --to-cover ENGINE")
    else:
        space = space_of(options.space, options.time_zone)
        clauses = named_clauses(clauses_of(options.clauses, options.file))
        plans = plan_of_clauses(clauses.items(), space, policy_of(options), act)
    print(json.dumps(as_json(plans)) if options.json else "\n".join(map(str, plans)))
    return OK


def _check_together(options: argparse.Namespace) -> None:
    """Options that do nothing without others are refused."""
    if options.to_cover is None:
        for name in ("to_retract", "to_merge"):
            given = getattr(options, name)
            if given is not None and given is not False:
                raise CallerError(f"--{name.replace('_', '-')} goes with --to-cover ENGINE")
    if options.scenario is None:
        for name in ("subscriptions", "degree", "events"):
            if getattr(options, name) is not None:
                raise CallerError(f"--{name} is the size of a scenario: it goes with --scenario NAME")
        return
    check_sizes(options)
    for name, given in (("CLAUSE", options.clauses), ("--file", options.file), ("--space", options.space)):
        if given:
            raise CallerError(f"--scenario has its own clauses: leave out {name}")
