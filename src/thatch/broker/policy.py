"""How a broker forwards: settings of one mechanism."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from thatch.cover import ENGINES, RelationGraph, Told
from thatch.errors import CallerError
from thatch.space import Space

GRAPHS = ("traditional", "simplified")
WINDOW = 256  # checks after which is decided whether checking pays


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is told to a neighbour, of what it is to know.

    >>> Policy("pairwise", retract=True)
    Policy(cover='pairwise', retract=True, graph=None, pays_from=None, options={})
    """

    cover: str | None = "exact"  # a cover engine; None: everything is told
    retract: bool | str = (
        False  # a wider one takes back the narrower ones told before: the congestion paper's *active*;
    )
    # "union": also those that it covers together with others
    graph: str | None = None  # "traditional" or "simplified": pairwise covering by a relation graph, always retracting
    pays_from: float | None = None  # stop checking while a smaller share of the newcomers is covered
    options: dict[str, Any] = {}  # of the engine

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

    def __str__(self) -> str:
        if self.cover is None:
            return "none"
        retracting = " retracting by union" if self.retract == "union" else " retracting"
        kind = f" {self.graph} graph" if self.graph else retracting if self.retract else " lazy"
        return self.cover + kind


Routing = Literal["advertisements", "subscriptions", "events"]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    routing: Routing = "advertisements"  # toward publishers; or subscriptions flood; or events do
    policy: Policy = Policy()
    links: dict[str, Policy] = {}  # a policy of their own for some neighbours
    holds_events: bool = False  # events for a neighbour that is away are sent all the same: the driver keeps them

    def __post_init__(self) -> None:
        if self.routing not in get_args(Routing):
            raise CallerError(f"routing is one of {', '.join(get_args(Routing))}, not {self.routing!r}")

    def policy_of(self, link: str) -> Policy:
        return self.links.get(link, self.policy)


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
