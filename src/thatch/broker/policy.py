"""How a broker forwards: settings of one mechanism."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import replace

from thatch.broker.cells import Cells
from thatch.cover import ENGINES, ActiveSet, CoverSet, RelationGraph
from thatch.errors import TOO_LARGE, CallerError, ClauseError, TooManyTerms, suggestion, unknown
from thatch.merge.merge import MergeSet
from thatch.protocol.versions import LIMITS, VERSION_MIN
from thatch.region.region import Region
from thatch.space.space import Space

GRAPHS = ("traditional", "simplified")
CHECKED = 256  # checks after which is decided whether checking pays
_MOST = {  # of a client, by the protocol
    "clause_characters_max": LIMITS[VERSION_MIN].clause_characters_max,
    "terms_max": LIMITS[VERSION_MIN].terms_max,
    "frame_bytes_max": LIMITS[VERSION_MIN].client_frame_bytes_max,
}


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is forwarded to a neighbour, of what it needs to know.

    >>> print(Policy("pairwise", retract=True, packed=True, theta=0.9))
    pairwise retracting, packed, incremental at 0.9
    """

    cover: str | None = "exact"  # a cover engine; None: everything is forwarded
    # A wider subscription retracts the narrower ones sent before: the congestion paper's *active*. "union": it also
    # retracts those that it covers together with others.
    retract: bool | str = False
    graph: str | None = None  # "traditional" or "simplified": pairwise covering by a relation graph, always retracting
    covered_share_min: float | None = None  # stop checking while a smaller share of newcomers is covered
    options: dict[str, Any] = {}  # of the engine
    packed: bool = False  # an unsubscription and what replaces it travel in one message
    # Incremental: a subscription that leaves is withdrawn only up to the broker from which on more than this share of
    # its events is wanted by others as well, and is preserved beyond.
    theta: float | None = None
    merge: float | None = None  # what is forwarded is merged: 0 perfectly, else adding at most this share

    def __post_init__(self) -> None:
        if self.cover is not None and self.cover not in ENGINES:
            raise CallerError(unknown("cover engine", self.cover, [*ENGINES, "none"]))
        if self.graph is not None and self.graph not in GRAPHS:
            raise CallerError(
                f"a relation graph is one of {', '.join(GRAPHS)}, not {self.graph!r}{suggestion(self.graph, GRAPHS)}"
            )
        if self.graph is not None and self.cover != "pairwise":
            raise CallerError("a relation graph needs pairwise covering: cover='pairwise'")
        if self.retract == "union" and self.cover is not None and ENGINES[self.cover].covers_by != "union":
            raise CallerError(f"{self.cover!r} covers by one: it cannot retract by a union")
        if self.covered_share_min is not None and not 0 <= self.covered_share_min <= 1:
            raise CallerError(f"covered_share_min is a share from 0 to 1, not {self.covered_share_min}")
        if self.theta is not None and not 0 <= self.theta < 1:
            raise CallerError(f"theta is a share of events from 0 to below 1, not {self.theta}")
        if self.theta is not None and self.cover is None:
            raise CallerError("theta needs covering: with covering off nothing is held back, and nothing is preserved")
        if self.merge is not None and not self.merge >= 0:
            raise CallerError(f"merge is the share that a merger may add, at least 0, not {self.merge}")
        if self.cover is None and (self.retract or self.options or self.covered_share_min is not None):
            raise CallerError("with covering off there is nothing to retract, to stop, or to give options to")
        if self.options:
            try:
                self.new_active_set(Space.parse("x bool"))
            except TypeError:
                raise CallerError(f"the cover engine {self.cover!r} does not take options of these types") from None

    def new_active_set(self, space: Space) -> CoverSet:
        """An empty active set of this policy."""
        if self.graph is not None:
            return RelationGraph(space, self.graph)
        return ActiveSet(space, self.cover, self.retract, **self.options)

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


class ClientLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client may send; at most what the protocol allows. What neighbours send is not up to settings."""

    clause_characters_max: int = _MOST["clause_characters_max"]
    terms_max: int = _MOST["terms_max"]
    frame_bytes_max: int = _MOST["frame_bytes_max"]

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise CallerError(f"{name} is from 1 to {most:,}, what the protocol allows, not {getattr(self, name)}")

    def check(self, where: str, region: Region) -> None:
        """Refuse a clause of a client that is too large here."""
        if len(where) > self.clause_characters_max:
            rule = f"the clause has {len(where):,} characters, at most {self.clause_characters_max:,} are allowed here"
            raise ClauseError(rule, construct=TOO_LARGE)
        if len(region.terms) > self.terms_max:
            raise TooManyTerms(len(region.terms), self.terms_max)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    routing: Routing = "advertisements"  # toward publishers; or subscriptions flood; or events do
    policy: Policy = Policy()
    links: dict[str, Policy] = {}  # a policy of their own for some neighbours
    history_seconds: float = 600.0  # of events by which incremental pruning judges
    idle_seconds: float = 30.0  # without a change of subscriptions, after which preserved ones are replaced
    # Forwarded a second at most in place of preserved subscriptions, and at once in place of one that leaves by
    # incremental pruning; 0: preserved ones stay, and everything is forwarded at once.
    replacements_per_second_max: float = 100.0
    cells: Cells | None = None  # a partition: neighbours that have the same one match events by their cells
    limits: ClientLimits = ClientLimits()
    holds_events: bool = False  # events for a neighbour that is away are sent all the same: the driver keeps them

    def __post_init__(self) -> None:
        if self.routing not in get_args(Routing):
            known = get_args(Routing)
            raise CallerError(
                f"routing is one of {', '.join(known)}, not {self.routing!r}{suggestion(self.routing, known)}"
            )
        if self.is_incremental and self.routing != "advertisements":
            why = "the way to a publisher is known by its advertisement, and distances are judged for each of these"
            raise CallerError(
                f"incremental pruning (theta) needs routing by advertisements, not {self.routing!r}: {why}"
            )
        if self.is_incremental and self.cells is not None:
            raise CallerError(
                "incremental pruning counts subscriptions that want an event, which cells cannot: set theta or cells"
            )
        if not self.history_seconds > 0 or not self.idle_seconds >= 0 or not self.replacements_per_second_max >= 0:
            raise CallerError(
                f"history_seconds ({self.history_seconds:g}) is above 0; idle_seconds ({self.idle_seconds:g}) and "
                f"replacements_per_second_max ({self.replacements_per_second_max:g}) are at least 0"
            )

    @property
    def is_incremental(self) -> bool:
        return any(each.theta is not None for each in (self.policy, *self.links.values()))

    def policy_of(self, link: str) -> Policy:
        return self.links.get(link, self.policy)

    def tuned(self, **fields: Any) -> Settings:
        """These settings with other fields in every policy. `packed` and `theta` may change while brokers run."""
        links = {name: replace(each, **fields) for name, each in self.links.items()}
        return replace(self, policy=replace(self.policy, **fields), links=links)

    def sends_same_as(self, other: Settings) -> bool:
        """Whether both forward the same: they differ only in how subscriptions leave."""
        bare = {"packed": False, "theta": None}
        one, two = self.tuned(**bare), other.tuned(**bare)
        named = {*one.links, *two.links}
        same = all(one.policy_of(name) == two.policy_of(name) for name in named)
        return (one.routing, one.policy) == (two.routing, two.policy) and same


class Worth:
    """Whether checking pays on a link: of `checked` newcomers that were checked, how many were covered? If too few, the
    next eight times as many are forwarded unchecked, and then so many are checked again."""

    def __init__(self, covered_share_min: float | None, checked: int = CHECKED) -> None:
        self.covered_share_min, self.checked = covered_share_min, checked
        self._checked = self._covered = self._unchecked = 0

    def next(self) -> bool:
        """Whether to check the next newcomer."""
        if self.covered_share_min is None:
            return True
        if self._unchecked:
            self._unchecked -= 1
            return False
        return True

    def saw(self, covered: bool) -> None:
        if self.covered_share_min is None:
            return
        self._checked += 1
        self._covered += covered
        if self._checked == self.checked:
            self._unchecked = 8 * self.checked if self._covered < self.covered_share_min * self.checked else 0
            self._checked = self._covered = 0
