"""Many clauses at once: the regions of those that can be used, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from thatch.errors import ClauseError
from thatch.region.region import Region
from thatch.space.space import Space


class CompiledClauses(NamedTuple):
    rows: list[int]  # those that have a region
    regions: list[Region]
    wrong: dict[int, ClauseError]  # the others, by row


def compile_many(clauses: Iterable[str | None], space: Space) -> CompiledClauses:
    """Compile each; a clause that is NULL is wrong, too.

    >>> from thatch import Space
    >>> found = compile_many(["price < 5", "prise < 5", None], Space.parse("price int"))
    >>> found.rows, sorted(found.wrong)
    ([0], [1, 2])
    """
    rows, regions, wrong = [], [], {}
    for row, clause in enumerate(clauses):
        try:
            if clause is None:
                raise ClauseError("the clause is NULL", hint="write TRUE for a subscription to everything")
            regions.append(space.where(clause))
            rows.append(row)
        except ClauseError as error:
            wrong[row] = error
    return CompiledClauses(rows, regions, wrong)
