"""Why a valid clause matches no event, in words: a value beyond the domain, a comparison with NULL, and the like."""

from __future__ import annotations

from thatch.errors import NAMES_LISTED, closest
from thatch.region.intervals import Intervals
from thatch.space.attribute import Attribute
from thatch.space.axis import EnumAxis, quoted
from thatch.space.space import Space
from thatch.where.compile import plan_of
from thatch.where.literals import Literal, Members, literal_text
from thatch.where.plans import (
    And,
    Atom,
    ClausePlan,
    Comparison,
    ConstantComparison,
    IsNull,
    Like,
    Listed,
    Literals,
    Or,
)

NEVER = "a comparison with NULL is never true"


def why_empty(clause: str, space: Space) -> str:
    """Why no event can match a clause; "" if more than one condition together is why, or one can.

    >>> why_empty("side = 'BUY'", Space.parse("side enum('buy', 'sell')"))
    "'BUY' is no value of side: 'buy', 'sell' (did you mean 'buy'?)"
    >>> why_empty("price > 1000", Space.parse("price double not null 0..1000"))
    'the domain of price is 0.0..1000.0'
    >>> why_empty("price BETWEEN 20 AND 10", Space.parse("price int"))
    '20 is above 10'
    """
    root, _, literals = plan_of(clause, space, {})
    return _reason(root, literals) or ""


def _reason(plan: ClausePlan, literals: Literals) -> str | None:
    """None of what is not empty, or for no reason that is known."""
    if isinstance(plan, ConstantComparison):
        compares_nothing = "it compares two literals: a text in quotes is no attribute"
        return None if plan.terms(literals, 1) else compares_nothing
    if isinstance(plan, Atom):
        found = plan.intervals(literals)
        return None if found is None or found.ends else _of_atom(plan, literals)
    if isinstance(plan, And):
        reasons = (_reason(part, literals) for part in plan.parts)
        return next((each for each in reasons if each), None) or _excluded(plan, literals)
    if isinstance(plan, Or):
        each = [_reason(part, literals) for part in plan.parts]
        return each[0] if all(each) else None
    return None


def _of_atom(atom: Atom, literals: Literals) -> str:
    attribute = atom.attribute
    if isinstance(atom, Comparison):
        literal = atom.operand.of(literals)
        if literal.kind == "n" and atom.operator != "<=>":
            write = {"=": "write IS NULL" if atom.positive else "write IS NOT NULL"}.get(atom.operator)
            return f"{NEVER}: {write or 'write IS NULL or IS NOT NULL'}"
        if literal.kind != "n":
            return _of_comparison(atom, literal, literals)
    if isinstance(atom, Comparison | IsNull):
        return f"{attribute.name} is not null"
    if isinstance(atom, Listed):
        members = literals[atom.slot]
        assert isinstance(members, Members)
        values = [each if members.kind else each.value for each in members.values]
        if not atom.positive and None in values:
            return "NOT IN is never true with NULL in the list"
        if isinstance(attribute.axis, EnumAxis) and atom.positive and isinstance(values[0], str):
            return _of_enum(attribute, attribute.axis, values[0])
    if isinstance(atom, Like) and atom.pattern.of(literals).kind == "n":
        return NEVER
    if isinstance(attribute.axis, EnumAxis):
        return f"{attribute.name} is one of {_listed(attribute.axis)}"
    return f"the domain of {attribute.name} is {'..'.join(attribute.domain)}"


def _of_comparison(atom: Comparison, literal: Literal, literals: Literals) -> str:
    attribute = atom.attribute
    if isinstance(attribute.axis, EnumAxis):
        if atom.operator in ("=", "<=>") and atom.positive:
            return _of_enum(attribute, attribute.axis, literal.value)
        return f"{attribute.name} is one of {_listed(attribute.axis)}"
    if atom.operator in ("=", "<=>") and atom.positive:
        sides = (Comparison(atom.index, attribute, True, each, atom.operand) for each in ("<=", ">="))
        if all((found := side.found(literals)) is None or found.ends for side in sides):
            return f"no {attribute.axis.sql} equals {literal_text(literal)}"
    return f"the domain of {attribute.name} is {'..'.join(attribute.domain)}"


def _of_enum(attribute: Attribute, axis: EnumAxis, value: str) -> str:
    close = closest(value, axis.values)
    meant = f" (did you mean {quoted(close)}?)" if close else ""
    return f"{quoted(value[:80])} is no value of {attribute.name}: {_listed(axis)}{meant}"


def _listed(axis: EnumAxis) -> str:
    more = ", …" if len(axis.values) > NAMES_LISTED else ""
    return ", ".join(map(quoted, axis.values[:NAMES_LISTED])) + more


def _excluded(plan: And, literals: Literals) -> str | None:
    """Conditions on one attribute that no value meets together."""
    together: dict[int, Intervals] = {}
    bounds: dict[int, list[Comparison]] = {}
    for part in plan.parts:
        if not isinstance(part, Atom) or (found := part.intervals(literals)) is None:
            continue
        if isinstance(part, Comparison) and part.positive:
            bounds.setdefault(part.index, []).append(part)
        both = found if part.index not in together else together[part.index] & found
        together[part.index] = both
        if not both.ends:
            return _above(bounds.get(part.index, []), literals) or f"no {part.attribute.name} meets all conditions"
    return None


def _above(bounds: list[Comparison], literals: Literals) -> str | None:
    """A lower bound that is above an upper one."""
    for lower in bounds:
        for upper in bounds:
            if lower.operator in (">", ">=") and upper.operator in ("<", "<="):
                one, other = lower.operand.of(literals), upper.operand.of(literals)
                left, right = lower.found(literals), upper.found(literals)
                if left and right and not (left & right).ends and literal_text(one) != literal_text(other):
                    return f"{literal_text(one)} is above {literal_text(other)}"
    return None
