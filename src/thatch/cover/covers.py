"""One question: does the union of these clauses cover that one?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thatch.cover.engines import engine
from thatch.cover.verdict import Uncovered, Verdict
from thatch.errors import CallerError
from thatch.region.region import Region
from thatch.space.space import Space


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
    if isinstance(members, Space) or not isinstance(space, Space):
        raise CallerError("a call is covers(members, clause, space), where space is a Space, such as Space.parse(…)")
    asked = engine(cover, space)
    for name, member in members.items() if isinstance(members, Mapping) else enumerate(members):
        asked.add(name, _region(member, space))
    verdict = asked.check(_region(region, space))
    return Uncovered(verdict.witness, space=space) if isinstance(verdict, Uncovered) else verdict


def _region(clause: Region | str, space: Space) -> Region:
    return clause if isinstance(clause, Region) else space.where(clause)
