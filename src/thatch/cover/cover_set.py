"""What every set of active and passive subscriptions does: `ActiveSet` by a cover engine, `RelationGraph` by a graph.

    forwarded    active                    together they hold every event that some subscription wants
    held back    passive, each with a certificate: active ones that cover it

Whoever holds a set sends what a `Change` says, and needs not know which kind it is. tests/cover/test_cover_sets.py runs
every kind through one contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from thatch.cover.verdict import Verdict
from thatch.region.region import Region
from thatch.space.space import Space


@dataclass(frozen=True, slots=True)
class Change:
    """What to send: apply `forward` first, then `withdraw`, and nothing is missed in between."""

    forward: list[Any] = field(default_factory=list)
    withdraw: list[Any] = field(default_factory=list)
    verdict: Verdict | None = None


class CoverSet(Protocol):
    """Subscriptions, each active or passive, in order of arrival."""

    space: Space

    @property
    def is_gradual(self) -> bool:
        """Whether an active one can be made to hold back fewer (`release`), and a newcomer be taken in unchecked. If
        not, what it holds back is forwarded all at once, when it leaves."""

    @property
    def keeps_certificates(self) -> bool:
        """Whether certificates are kept as they were decided, so that `load` with those of any set of its policy spares
        deciding again. If not, they follow from its structure."""

    @property
    def active(self) -> list[Any]:
        """The active ids, in order of arrival."""

    @property
    def passive(self) -> dict[Any, tuple[Any, ...]]:
        """The passive ids, each with its certificate."""

    def __len__(self) -> int: ...

    def __contains__(self, id: object) -> bool: ...

    def region(self, id: Any) -> Region: ...

    def is_active(self, id: Any) -> bool: ...

    def certificate(self, id: Any) -> tuple[Any, ...] | None:
        """Who covers a passive one; None for an active one."""

    def subscribe(self, id: Any, region: Region, check: bool = True, witness: bool = True) -> Change:
        """A newcomer, active unless it is covered. A gradual set takes it in as active without `check`. Without
        `witness` the verdict may be left out."""

    def unsubscribe(self, id: Any) -> Change:
        """Forward names those that are no longer covered; withdraw names the one that leaves, if it was active."""

    def replace(self, id: Any, region: Region) -> Change:
        """Give a subscription another region, in one step. It keeps its place in the order of arrival."""

    def exchange(self, gone: Sequence[Any], new: Mapping[Any, Region]) -> Change:
        """Some leave and others come in their place, in one step."""

    def dependents(self, id: Any) -> list[Any]:
        """Those that an active one holds back, in order of arrival."""

    def holds_back(self, id: Any) -> bool:
        """Whether it has dependents."""

    def promotes_more_than(self, id: Any, more_than: float = 0) -> bool:
        """Whether more than so many may have to be forwarded if an active one left."""

    def release(self, id: Any, most: int) -> Change:
        """Make an active one hold back `most` fewer than it does, if the set is gradual: others cover them, or they are
        promoted."""

    def load(self, regions: Mapping[Any, Region], certificates: Mapping[Any, tuple[Any, ...]]) -> None:
        """Into an empty set: what a set of the same kind had decided, in order of arrival."""

    def recompiled(self, space: Space, regions: Mapping[Any, Region]) -> tuple[CoverSet, Change]:
        """The same subscriptions in another space, with the regions that they have there."""

    def check_invariants(self) -> None: ...
