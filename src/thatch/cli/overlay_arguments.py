"""What the commands on simulated overlays take: a policy."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from thatch.cli.parser import number

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


def policy_of(options: argparse.Namespace) -> Policy:
    from thatch.broker import Policy

    cover = None if options.cover == "none" else options.cover
    return Policy(
        cover, options.retract, options.graph, packed=options.packed, theta=options.theta, merge=options.merge
    )
