"""The plan of a plain clause without a parser: tests of attributes joined by AND and OR, with no parentheses.

Most clauses that people write are of this form. Reading one takes a regular expression for each test, where sqlglot
takes about a millisecond and, for the first clause of a process, as long to import as numpy. Whatever is not plain, or
not in order, is left to compile.py, which also knows what to say about it.
"""

from __future__ import annotations

import re

from thatch.space.space import Space
from thatch.where.lexer import MARK, RESERVED
from thatch.where.plans import And, Atom, ClausePlan, Comparison, IsNull, Listed, Operand, Or

SIZE_MAX = 2_048  # characters of a shape
# ASCII alone, and quantifiers that never give back what they took: a shape is read once, from left to right.
_END = r"(?!\w)"
_TEST = re.compile(
    rf"""\s*+ (?P<name>[a-z_]\w*+) \s*+
    (?: (?P<operator><=>|<=|>=|<>|!=|==|=|<|>) \s*+ (?P<sign>-?+) \s*+ {MARK}(?P<kind>[a-km-z])
      | (?P<not_in>NOT{_END}\s*+)?+ (?P<list>{MARK}l)
      | (?P<not_between>NOT{_END}\s*+)?+ BETWEEN{_END} \s*+ (?P<low_sign>-?+) \s*+ {MARK}(?P<low_kind>[a-km-z]) \s*+
        AND{_END} \s*+ (?P<high_sign>-?+) \s*+ {MARK}(?P<high_kind>[a-km-z])
      | IS{_END} \s*+ (?P<not_null>NOT{_END}\s*+)?+ NULL{_END}
    ) \s*+ (?P<connector>AND{_END}|OR{_END}|\Z)""".replace(MARK, r"\x00"),
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_NUMBERS = frozenset("idf")  # kinds of literals that may have a sign
_OPERATORS = {"==": "=", "!=": "<>"}


def plain_plan(shape: str, space: Space) -> ClausePlan | None:
    """The plan of a clause's shape; None if it is not plain."""
    if len(shape) > SIZE_MAX:
        return None
    groups: list[list[ClausePlan]] = [[]]  # an OR of ANDs
    at = slot = 0
    while True:
        match = _TEST.match(shape, at)
        plan = None if match is None else _plan_of(match, slot, space)
        if match is None or plan is None:
            return None
        groups[-1].append(plan)
        slot += shape.count(MARK, at, match.end())
        at, connector = match.end(), match["connector"].upper()
        if not connector:
            break
        if connector == "OR":
            groups.append([])
    parts = tuple(_joined(And, tuple(group), space) for group in groups)
    return _joined(Or, parts, space)


def _joined(kind: type[And | Or], parts: tuple[ClausePlan, ...], space: Space) -> ClausePlan:
    return kind(parts, space) if len(parts) > 1 else parts[0]


def _plan_of(match: re.Match[str], slot: int, space: Space) -> ClausePlan | None:
    """Of one test, whose first literal has a number."""
    name, operator = match["name"], match["operator"]
    index = None if name.upper() in RESERVED else space.index(name)
    if index is None or len(space.attributes[index].path) != 1:
        return None
    attribute = space.attributes[index]

    def compared(operator: str, slot: int, sign: str, kind: str, positive: bool) -> Atom | None:
        if sign and kind not in _NUMBERS:
            return None
        return Comparison(index, attribute, positive, operator, Operand(slot, bool(sign)))

    if operator:
        operator = _OPERATORS.get(operator, operator)
        is_different = operator == "<>"
        return compared("=" if is_different else operator, slot, match["sign"], match["kind"], not is_different)
    if match["low_kind"]:
        positive = not match["not_between"]
        low = compared(">=", slot, match["low_sign"], match["low_kind"], positive)
        high = compared("<=", slot + 1, match["high_sign"], match["high_kind"], positive)
        if low is None or high is None:
            return None
        return And((low, high), space) if positive else Or((low, high), space)
    if match["list"]:
        return Listed(index, attribute, not match["not_in"], slot)
    return IsNull(index, attribute, not match["not_null"])
