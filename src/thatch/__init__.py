"""Thatch: who wants this event, and is this subscription already covered by the others?

The source, in reading order; each file and package imports only what stands before it:

    errors    errors, by whose fault they are
    jit       how hot code is compiled
    space     values of events to the integer lattice and back
    region    sets of points: unions of boxes and balls
    where     SQL clauses to regions, and back
    grid      cells, and curves through them
    cover     is it covered by the others, and which ones prove it?
    merge     several regions as one
    matching  who wants this event?
    learning  what events and subscriptions look like together
    table     standing queries in one process
    rivals    methods kept to compare with
    protocol  what brokers and clients say
    broker    the broker, a pure state machine
    delivery  what must arrive although nodes and stores fail
    sim       many brokers, one seed
    reports   pages for people
    local     match, reduce, learn, audit over tables and files in one process
    spark     the same over DataFrames
    client    the client, for programs
    node      one broker in the real world
    cli       the command line
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thatch.errors import (
    BadRows,
    CallerError,
    ClauseError,
    ConfigError,
    EmptyRegionWarning,
    EventError,
    PeerError,
    SnapshotError,
    SpaceError,
    StoreError,
    ThatchError,
    TimedOut,
    TooManyBoxes,
    TooManyTerms,
    Unavailable,
    UnknownSubscription,
    suggestion,
)

if TYPE_CHECKING:
    from thatch.cover.cover_set import Change
    from thatch.cover.covers import covers
    from thatch.cover.verdict import Covered, Likely, Uncovered, Unproven, Verdict
    from thatch.local.audit import audit
    from thatch.local.learn import learn
    from thatch.local.match import match
    from thatch.local.reduce import reduce
    from thatch.local.rule_files import read_rules
    from thatch.region.region import Region
    from thatch.reports.learn import Learned
    from thatch.space.space import Space
    from thatch.table.explain import Explanation, Failure
    from thatch.table.table import RegionMatch, Subscription, SubscriptionTable

__version__ = "0.1.0"
__all__ = [
    "BadRows",
    "CallerError",
    "Change",
    "ClauseError",
    "ConfigError",
    "Covered",
    "EmptyRegionWarning",
    "EventError",
    "Explanation",
    "Failure",
    "Learned",
    "Likely",
    "PeerError",
    "Region",
    "RegionMatch",
    "SnapshotError",
    "Space",
    "SpaceError",
    "StoreError",
    "Subscription",
    "SubscriptionTable",
    "ThatchError",
    "TimedOut",
    "TooManyBoxes",
    "TooManyTerms",
    "Unavailable",
    "Uncovered",
    "UnknownSubscription",
    "Unproven",
    "Verdict",
    "audit",
    "covers",
    "learn",
    "match",
    "read_rules",
    "reduce",
]
_MODULES = {
    "Change": "cover.active_set",
    "Covered": "cover.verdict",
    "Explanation": "table.explain",
    "Failure": "table.explain",
    "Learned": "reports.learn",
    "Likely": "cover.verdict",
    "Region": "region.region",
    "RegionMatch": "table.table",
    "Space": "space.space",
    "Subscription": "table.table",
    "SubscriptionTable": "table.table",
    "Uncovered": "cover.verdict",
    "Unproven": "cover.verdict",
    "Verdict": "cover.verdict",
    "covers": "cover.covers",
    "audit": "local.audit",
    "learn": "local.learn",
    "match": "local.match",
    "read_rules": "local.rule_files",
    "reduce": "local.reduce",
}


def __getattr__(name: str) -> Any:
    """What loads NumPy or the compiler is loaded when it is first asked for: Ctrl-C may come while it is."""
    if name in _MODULES:
        return getattr(import_module(f"thatch.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'thatch' has no attribute {name!r}{suggestion(name, __all__)}", name=name)


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
