"""Is this subscription already covered by the others, and which ones prove it?

`ENGINES` names every way to answer; a contract suite runs them all. Kernels are loaded with the first engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thatch.cover.engine import CoverEngine, region_of_box
from thatch.cover.exact import ExactEngine
from thatch.cover.pairwise import PairwiseEngine
from thatch.cover.verdict import Covered, Uncovered, Unproven, Verdict, grown, verify
from thatch.errors import CallerError
from thatch.region import Region
from thatch.space import Space

ENGINES: dict[str, type[CoverEngine]] = {engine.name: engine for engine in (PairwiseEngine, ExactEngine)}


def engine(name: str, space: Space, **options: Any) -> CoverEngine:
    """A cover engine by name, as in `engine("exact", space)`."""
    if name not in ENGINES:
        raise CallerError(f"no cover engine {name!r}; there are {', '.join(ENGINES)}")
    return ENGINES[name](space, **options)


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
    named = members.items() if isinstance(members, Mapping) else enumerate(members)
    asked = engine(cover, space)
    for name, member in named:
        asked.add(name, space.where(member) if isinstance(member, str) else member)
    verdict = asked.check(space.where(region) if isinstance(region, str) else region)
    return Uncovered(verdict.witness) if isinstance(verdict, Uncovered) else verdict


__all__ = [
    "ENGINES",
    "CoverEngine",
    "Covered",
    "ExactEngine",
    "PairwiseEngine",
    "Uncovered",
    "Unproven",
    "Verdict",
    "covers",
    "engine",
    "grown",
    "region_of_box",
    "verify",
]
