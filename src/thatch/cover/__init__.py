"""Is this subscription already covered by the others, and which ones prove it? Kernels are loaded with this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thatch.cover.cells import CellIndex, CellTable
from thatch.cover.engine import CoverEngine, region_of_box
from thatch.cover.engines import ENGINES, engine
from thatch.cover.exact import ExactEngine
from thatch.cover.graph import RelationGraph
from thatch.cover.hilbert import HilbertEngine
from thatch.cover.merge import Merger, MergeSet, Retold, merged
from thatch.cover.montecarlo import MonteCarloEngine
from thatch.cover.negative import NegativeEngine
from thatch.cover.pairwise import PairwiseEngine
from thatch.cover.projection import ProjectionEngine
from thatch.cover.summary import LinkSummary
from thatch.cover.told import Change, Told
from thatch.cover.verdict import Covered, Likely, Uncovered, Unproven, Verdict, grown, verify
from thatch.errors import CallerError
from thatch.region import Region
from thatch.space import Space


def covers(
    members: Mapping[Any, Region | str] | Sequence[Region | str],
    region: Region | str,
    space: Space,
    cover: str = "exact",
) -> Verdict:
    """Does the union of members cover a region? A certificate names them by key, or by position in a sequence.

    >>> space = Space.parse("price double not null 0..1000")
    >>> covers(["price < 20", "price >= 20"], "price < 50", space)
    Covered(certificate=(0, 1))
    >>> space.decode(covers(["price < 20"], "price < 50", space).witness)
    {'price': 20.0}
    """
    if isinstance(members, str | Region):
        raise CallerError("the members are a list or a mapping of clauses, not one clause")
    asked = engine(cover, space)
    for name, member in members.items() if isinstance(members, Mapping) else enumerate(members):
        asked.add(name, _region(member, space))
    verdict = asked.check(_region(region, space))
    return Uncovered(verdict.witness, space=space) if isinstance(verdict, Uncovered) else verdict


def _region(clause: Region | str, space: Space) -> Region:
    return clause if isinstance(clause, Region) else space.where(clause)


__all__ = [
    "ENGINES",
    "CellIndex",
    "CellTable",
    "Change",
    "CoverEngine",
    "Covered",
    "ExactEngine",
    "HilbertEngine",
    "Likely",
    "LinkSummary",
    "MergeSet",
    "Merger",
    "MonteCarloEngine",
    "NegativeEngine",
    "PairwiseEngine",
    "ProjectionEngine",
    "RelationGraph",
    "Retold",
    "Told",
    "Uncovered",
    "Unproven",
    "Verdict",
    "covers",
    "engine",
    "grown",
    "merged",
    "region_of_box",
    "verify",
]
