"""`thatch simulate`: a scenario of the simulator."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from thatch.cli.arguments import OK, add_json
from thatch.cli.overlay_arguments import add_policy, check_sizes, policy_of
from thatch.cli.parser import number, whole_number
from thatch.errors import CallerError


def add(commands: Any) -> None:
    command = commands.add_parser(
        "simulate",
        help="many brokers in one process, in simulated time",
        description="Run a scenario in the simulator, which drives the real broker in simulated time. With --output: "
        "measurements in FOLDER/measured.parquet (time, broker, tier, measure, value) and plots.",
        epilog="example: thatch simulate unsubscriptions --cover pairwise --retract --output results/active",
    )
    _add_arguments(command)
    add_json(command)
    command.set_defaults(run=run)


def _add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", metavar="SCENARIO", nargs="?", help="its name; without one, they are listed")
    own = "(default: the scenario's)"
    command.add_argument("--subscriptions", type=whole_number, help=own)
    command.add_argument("--degree", type=whole_number, help=f"covering degree: exposed when a root leaves {own}")
    command.add_argument("--events", type=whole_number, help=own)
    command.add_argument("--unsubscriptions", type=whole_number, help=f"that leave; or moves of monitors {own}")
    add_policy(command)
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
        type=number,
        metavar="N",
        help=f"forwarded a second in place of a subscription that leaves by --theta; 0: all at once {own}",
    )
    command.add_argument("--seed", type=whole_number, default=0)
    command.add_argument("--interval", type=number, default=1.0, metavar="SECONDS", help="between samples")
    command.add_argument("--output", metavar="FOLDER")
    command.add_argument("--no-plots", action="store_true")


def run(options: argparse.Namespace) -> int:
    from thatch.cli.simulated import simulate
    from thatch.local.writing import check_can_write
    from thatch.sim.scenarios import SCENARIOS, Options

    if options.scenario is None:
        named = {each.name: each.about for each in SCENARIOS.values()}
        print(json.dumps(named) if options.json else "\n".join(f"{name:<18}{about}" for name, about in named.items()))
        return OK
    check_sizes(options)
    if not options.interval > 0:
        raise CallerError(f"--interval {options.interval:g}: a number of seconds above 0")
    chosen = Options(
        options.subscriptions, options.degree, options.events, options.unsubscriptions, policy_of(options),
        options.routing, options.costs, options.seed,
        replacements_per_second_max=options.replacements_per_second_max, events_first=options.events_first,
    )  # fmt: skip
    folder = None if options.output is None else Path(options.output)
    if folder is not None and folder.is_file():
        raise CallerError(f"{folder} is a file, a folder is needed")
    if folder is not None:
        check_can_write(str(folder))
    result = simulate(options.scenario, chosen, folder, not options.no_plots, options.interval)
    print(json.dumps(asdict(result)) if options.json else result.text())
    return OK
