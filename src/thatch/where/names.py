"""Which columns do clauses mention?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from zoneinfo import ZoneInfo

from thatch.errors import ClauseError
from thatch.where.lexer import PART, sanitised, scan

_NAME = re.compile(r"`((?:[^`]|``)+)`")
SHAPES_MAX = 100_000  # that are known by heart; further ones are looked at again


def names_in(clauses: Iterable[str], zone: ZoneInfo) -> set[tuple[str, ...]]:
    """The names that clauses mention, each with those of the fields after it, as written. A clause that cannot be read
    mentions none: what is wrong with it is said when it is compiled.

    >>> sorted(names_in(["a = 1 AND detail.state = 'x'", "`a b` < 2 OR within(1, x, 2, y, 3)", "a ="], ZoneInfo("UTC")))
    [('a',), ('a b',), ('detail', 'state'), ('x',), ('y',)]
    """
    found: set[tuple[str, ...]] = set()
    known: set[str] = set()
    for clause in clauses:
        try:
            shape, _ = scan(clause, zone)
            if shape in known:
                continue
            text = sanitised(clause, shape).text
        except ClauseError:
            continue
        if len(known) < SHAPES_MAX:
            known.add(shape)
        found.update(tuple(name.replace("``", "`").split(PART)) for name in _NAME.findall(text))
    return found
