"""What the commands on simulated overlays take: a policy."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from thatch.cli.parser import number
from thatch.errors import CallerError

if TYPE_CHECKING:
    from thatch.broker import Policy


def add_policy(command: argparse.ArgumentParser) -> None:
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
        type=number,
        metavar="SHARE",
        help="incremental: preserve a subscription that leaves where others want more than this share of its events",
    )
    command.add_argument(
        "--merge",
        type=number,
        metavar="SHARE",
        help="forward several subscriptions as one, adding at most this share; 0: perfectly",
    )


SIZES = {"subscriptions": 1, "degree": 1, "events": 0, "unsubscriptions": 0}  # options, and the least of each


def check_sizes(options: argparse.Namespace) -> None:
    for name, least in SIZES.items():
        given = getattr(options, name, None)
        if given is not None and given < least:
            raise CallerError(f"--{name} is at least {least}, not {given}")


def policy_of(options: argparse.Namespace) -> Policy:
    from thatch.broker import Policy
    from thatch.broker.policy import GRAPHS
    from thatch.cover import ENGINES

    cover = None if options.cover == "none" else options.cover
    if options.graph in GRAPHS and cover != "pairwise":
        raise CallerError("--graph goes with --cover pairwise")
    if options.retract == "union" and cover in ENGINES and ENGINES[cover].covers_by != "union":
        raise CallerError(f"--retract union does not go with --cover {cover}, which covers by one")
    if options.theta is not None and not 0 <= options.theta < 1:
        raise CallerError(f"--theta is a share of events from 0 to below 1, not {options.theta:g}")
    if options.merge is not None and not options.merge >= 0:
        raise CallerError(f"--merge is the share that a merger may add, at least 0, not {options.merge:g}")
    if cover is None and options.theta is not None:
        raise CallerError("--theta does not go with --cover none: nothing is held back")
    if cover is None and options.retract:
        raise CallerError("--retract does not go with --cover none: there is nothing to retract")
    return Policy(
        cover, options.retract, options.graph, packed=options.packed, theta=options.theta, merge=options.merge
    )
