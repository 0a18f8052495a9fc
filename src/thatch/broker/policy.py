"""How a broker forwards: settings of one mechanism."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from thatch.broker.cells import Cells
from thatch.cover import ENGINES, RelationGraph, Told
from thatch.errors import CallerError
from thatch.merge.merge import MergeSet
from thatch.space.space import Space

GRAPHS = ("traditional", "simplified")
WINDOW = 256  # checks after which is decided whether checking pays


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is told to a neighbour, of what it is to know.

    >>> print(Policy("pairwise", retract=True, packed=True, theta=0.9))
    pairwise retracting, packed, incremental at 0.9
    """

    cover: str | None = "exact"  # a cover engine; None: everything is told
    retract: bool | str = (
        False  # a wider one takes back the narrower ones told before: the congestion paper's *active*;
    )
    # "union": also those that it covers together with others
    graph: str | None = None  # "traditional" or "simplified": pairwise covering by a relation graph, always retracting
    pays_from: float | None = None  # stop checking while a smaller share of the newcomers is covered
    options: dict[str, Any] = {}  # of the engine
    packed: bool = False  # what leaves and what comes in its place is one message
    theta: float | None = None  # incremental: what leaves is taken back only as far as more than this share of its
    # events is wanted by somebody else, too, and is preserved beyond
    merge: float | None = None  # what is told is merged: 0 perfectly, else adding at most this share

    def __post_init__(self) -> None:
        if self.cover is not None and self.cover not in ENGINES:
            raise CallerError(f"no cover engine {self.cover!r}; there are {', '.join(ENGINES)}, or None")
        if self.graph is not None and self.graph not in GRAPHS:
            raise CallerError(f"a relation graph is one of {', '.join(GRAPHS)}, not {self.graph!r}")
        if self.graph is not None and self.cover != "pairwise":
            raise CallerError("a relation graph is of pairwise covering: cover='pairwise'")
        if self.retract == "union" and self.cover is not None and ENGINES[self.cover].covers_by != "union":
            raise CallerError(f"{self.cover!r} covers by one: it cannot retract by a union")
        if self.pays_from is not None and not 0 <= self.pays_from <= 1:
            raise CallerError(f"pays_from is a share from 0 to 1, not {self.pays_from}")
        if self.theta is not None and not 0 <= self.theta < 1:
            raise CallerError(f"theta is a share of events from 0 to below 1, not {self.theta}")
        if self.theta is not None and self.cover is None:
            raise CallerError("with covering off nothing is held back, so that there is nothing to preserve: no theta")
        if self.merge is not None and not self.merge >= 0:
            raise CallerError(f"merge is the share that a merger may add, of at least 0, not {self.merge}")
        if self.cover is None and (self.retract or self.options or self.pays_from is not None):
            raise CallerError("with covering off there is nothing to retract, to stop, or to give options to")
        if self.options:
            try:
                self.told(Space.parse("x bool"))
            except TypeError as error:
                raise CallerError(f"the cover engine {self.cover!r} does not take these options: {error}") from None

    def told(self, space: Space) -> Told | RelationGraph:
        """An empty told set of this policy."""
        if self.graph is not None:
            return RelationGraph(space, self.graph)
        return Told(space, self.cover, self.retract, **self.options)

    def merging(self, space: Space) -> MergeSet | None:
        return None if self.merge is None else MergeSet(space, self.merge)

    def __str__(self) -> str:
        retracting = " retracting by union" if self.retract == "union" else " retracting"
        kind = f" {self.graph} graph" if self.graph else retracting if self.retract else " lazy"
        parts = ["none" if self.cover is None else self.cover + kind]
        if self.packed:
            parts.append("packed")
        if self.theta is not None:
            parts.append(f"incremental at {self.theta:g}")
        if self.merge is not None:
            parts.append(f"merging within {self.merge:g}" if self.merge else "merging perfectly")
        return ", ".join(parts)


Routing = Literal["advertisements", "subscriptions", "events"]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    routing: Routing = "advertisements"  # toward publishers; or subscriptions flood; or events do
    policy: Policy = Policy()
    links: dict[str, Policy] = {}  # a policy of their own for some neighbours
    window: float = 600.0  # seconds of events by which incremental pruning judges
    idle: float = 30.0  # seconds without a change of subscriptions, after which preserved ones are replaced
    replaced: float = 100.0  # told a second at most, of what preserved ones stand for, and at once in place of one that
    # leaves by incremental pruning; 0: preserved ones are left, and all is told at once
    cells: Cells | None = None  # a partition: neighbours that have the same one match events by their cells
    holds_events: bool = False  # events for a neighbour that is away are sent all the same: the driver keeps them

    def __post_init__(self) -> None:
        if self.routing not in get_args(Routing):
            raise CallerError(f"routing is one of {', '.join(get_args(Routing))}, not {self.routing!r}")
        if self.is_incremental and self.routing != "advertisements":
            why = "the way to a publisher is known by its advertisement, and distances are judged for each of these"
            raise CallerError(
                f"incremental pruning (theta) needs routing by advertisements, not {self.routing!r}: {why}"
            )
        if self.is_incremental and self.cells is not None:
            raise CallerError("incremental pruning counts who wants an event, which cells do not tell: theta or cells")
        if not self.window > 0 or not self.idle >= 0 or not self.replaced >= 0:
            raise CallerError(
                f"window ({self.window:g}) is a number of seconds above 0, idle ({self.idle:g}) and replaced "
                f"({self.replaced:g}) are at least 0"
            )

    @property
    def is_incremental(self) -> bool:
        return any(each.theta is not None for each in (self.policy, *self.links.values()))

    def policy_of(self, link: str) -> Policy:
        return self.links.get(link, self.policy)

    def tuned(self, **fields: Any) -> Settings:
        """With other fields in every policy: `packed` and `theta` may be changed while brokers run."""
        links = {name: replace(each, **fields) for name, each in self.links.items()}
        return replace(self, policy=replace(self.policy, **fields), links=links)

    def tells_as(self, other: Settings) -> bool:
        """Whether both tell the same: what differs is how something leaves."""
        bare = {"packed": False, "theta": None}
        one, two = self.tuned(**bare), other.tuned(**bare)
        named = {*one.links, *two.links}
        same = all(one.policy_of(name) == two.policy_of(name) for name in named)
        return (one.routing, one.policy) == (two.routing, two.policy) and same


class Worth:
    """Whether checking pays on a link: of `WINDOW` newcomers that were checked, how many were covered? If too few, the
    next eight windows are told unchecked, and then one is checked again."""

    def __init__(self, pays_from: float | None) -> None:
        self.pays_from = pays_from
        self._checked = self._covered = self._unchecked = 0

    def next(self) -> bool:
        """Check the next one?"""
        if self.pays_from is None:
            return True
        if self._unchecked:
            self._unchecked -= 1
            return False
        return True

    def saw(self, covered: bool) -> None:
        if self.pays_from is None:
            return
        self._checked += 1
        self._covered += covered
        if self._checked == WINDOW:
            self._unchecked = 8 * WINDOW if self._covered < self.pays_from * WINDOW else 0
            self._checked = self._covered = 0
