"""Plans: which points does a clause hold at, given its literals?

A plan is AND and OR over atoms, with every NOT pushed down to them. Three-valued logic: an atom is TRUE, FALSE or
unknown at a point. A plan asks each atom for the points where it is TRUE, or, below an odd number of NOTs, for those
where it is FALSE (Kleene: an AND is FALSE where one part is, an OR where all are). What is unknown is in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from thatch.errors import shown
from thatch.region.ball import Ball
from thatch.region.intervals import EMPTY, Intervals
from thatch.region.term import Term, simplified
from thatch.space.attribute import Attribute
from thatch.space.axis import EnumAxis, IntAxis, LabelledAxis, StringAxis
from thatch.space.decimals import LongDecimalAxis
from thatch.space.space import Space
from thatch.where import coercion
from thatch.where.lexer import BAD_LITERAL
from thatch.where.like import ANY, WILDCARDS, Pattern, after_prefix, parts_of
from thatch.where.literals import KIND_NAMES, Literal, Members, as_double, literal_text, negated

PAIRS_MAX = 16  # an AND of two ORs tries at most this many times the cap of combinations
MEMBERS_NAMED = 100  # of an IN list that are looked at one by one for an error
OR_MAX = 4  # an OR may gather this many times the cap, to be united and absorbed

Literals = Sequence[Literal | Members]


class TooMany(Exception):
    """More terms than the cap, or too many ways to combine them; how many is counted afterwards."""


class BadLiteral(Exception):
    """A literal does not suit its place; the clause, which a plan does not know, tells where it stands."""

    def __init__(self, slot: int, rule: str, construct: str = BAD_LITERAL) -> None:
        super().__init__(rule)
        self.slot = slot
        self.rule = rule
        self.construct = construct


class ClausePlan:
    """A node of a plan: which points, given the literals?"""

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        raise NotImplementedError

    def count(self) -> int:
        """How many terms there are if none is empty or lies in another: what the cap is about."""
        return 1

    def one_attribute(self) -> int | None:
        """The attribute, if this looks at one alone: then it is one term."""
        return None


def _common(indices: list[int | None]) -> int | None:
    return indices[0] if len(set(indices)) == 1 else None


@dataclass(frozen=True, slots=True)
class And(ClausePlan):
    """AND. Parts on one attribute are intersected before they become terms."""

    parts: tuple[ClausePlan, ...]
    space: Space

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        sides: dict[int, Intervals] = {}
        wider: list[list[Term]] = []
        for part in self.parts:
            if isinstance(part, Atom):
                intervals = part.intervals(literals)
                if intervals is None:
                    continue
                index = part.index
                if index in sides:
                    intervals = sides[index] & intervals
                if not intervals.ends:
                    return []
                sides[index] = intervals
            else:
                wider.append(part.terms(literals, terms_max))
        found = [Term.of(sides)]
        wider.sort(key=len)
        for terms in wider:
            if len(found) * len(terms) > PAIRS_MAX * terms_max:
                raise TooMany
            found = [both for one in found for other in terms if (both := one & other) is not None]
            if len(found) > terms_max:
                found = simplified(found, self.space)
                if len(found) > terms_max:
                    raise TooMany
        return found

    def count(self) -> int:
        return prod(part.count() for part in self.parts)

    def one_attribute(self) -> int | None:
        return _common([part.one_attribute() for part in self.parts])


@dataclass(frozen=True, slots=True)
class Or(ClausePlan):
    """OR. Parts on one attribute are united before they become terms."""

    parts: tuple[ClausePlan, ...]
    space: Space

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        pairs: dict[int, list[tuple[int, int]]] = {}
        found: list[Term] = []
        for part in self.parts:
            for term in part.terms(literals, terms_max):
                if len(term.sides) == 1 and not term.balls:
                    ((index, intervals),) = term.sides
                    pairs.setdefault(index, []).extend(intervals)
                elif term.sides or term.balls:
                    found.append(term)
                else:
                    return [term]
            if len(found) > OR_MAX * terms_max:
                raise TooMany
        for index, union in pairs.items():
            intervals = Intervals.of(union)
            attribute = self.space.attributes[index]
            if len(intervals) == 1 and intervals.low == attribute.low and intervals.high == attribute.last:
                return [Term()]
            found.append(Term(((index, intervals),)))
        return found

    def count(self) -> int:
        single: set[int] = set()
        total = 0
        for part in self.parts:
            index = part.one_attribute()
            if index is None:
                total += part.count()
            else:
                single.add(index)
        return total + len(single)

    def one_attribute(self) -> int | None:
        return _common([part.one_attribute() for part in self.parts])


@dataclass(frozen=True, slots=True)
class Constant(ClausePlan):
    holds: bool

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        return [Term()] if self.holds else []


@dataclass(frozen=True, slots=True)
class ConstantComparison(ClausePlan):
    """A comparison of two literals."""

    left: Operand
    operator: str
    right: Operand
    positive: bool

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        try:
            holds = coercion.constant(self.left.of(literals), self.operator, self.right.of(literals))
        except ValueError as error:
            raise BadLiteral(max(self.right.slot, self.left.slot), f"a literal {error}") from None
        return [Term()] if holds is self.positive else []


@dataclass(frozen=True, slots=True)
class Within(ClausePlan):
    """A ball. Only ever positive: what is outside a ball is no term."""

    radius: Operand
    indices: tuple[int, ...]
    centre: tuple[Operand, ...]
    attributes: tuple[Attribute, ...]

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        numbers = [self._double(operand, literals) for operand in (self.radius, *self.centre)]
        radius, *centre = numbers
        if radius is not None and not radius >= 0:
            raise BadLiteral(self.radius.slot, f"the radius {radius!r} of `within` is not 0 or more")
        doubles = [number for number in centre if number is not None]
        if radius is None or len(doubles) < len(centre):
            return []
        sides = {}
        for index in self.indices:
            attribute = self.attributes[index]
            if attribute.nullable:
                sides[index] = Intervals.between(attribute.first, attribute.last)
        ball = Ball(self.indices, tuple(doubles), radius)
        return [Term.of(sides, (ball,))]

    def _double(self, operand: Operand, literals: Literals) -> float | None:
        literal = operand.of(literals)
        try:
            return None if literal.kind == "n" else as_double(literal)
        except ValueError as error:
            raise BadLiteral(operand.slot, f"a number in `within` {error}") from None


@dataclass(frozen=True, slots=True)
class Operand:
    """A literal in a clause: by its number, or NULL, TRUE and FALSE as they stand."""

    slot: int
    negative: bool = False
    fixed: Literal | None = None

    def of(self, literals: Literals) -> Literal:
        if self.fixed is not None:
            return self.fixed
        literal = literals[self.slot]
        assert isinstance(literal, Literal)
        return negated(literal) if self.negative else literal


class Atom(ClausePlan):
    """A condition on one attribute. `positive` asks where it is TRUE, else where it is FALSE."""

    __slots__ = ("attribute", "index", "positive")

    def __init__(self, index: int, attribute: Attribute, positive: bool) -> None:
        self.index = index
        self.attribute = attribute
        self.positive = positive

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        intervals = self.intervals(literals)
        if intervals is None:
            return [Term()]
        return [Term(((self.index, intervals),))] if intervals.ends else []

    def one_attribute(self) -> int | None:
        return self.index

    def intervals(self, literals: Literals) -> Intervals | None:
        """The coordinates; None for all of them."""
        found = self.found(literals)
        attribute = self.attribute
        if found is not None and len(found.ends) == 2 and found.low == attribute.low and found.high == attribute.last:
            return None
        return found

    def found(self, literals: Literals) -> Intervals | None:
        raise NotImplementedError

    def true_or_false(self, true: Intervals) -> Intervals:
        """Of a condition that is unknown at NULL only: where it is what is asked for."""
        attribute = self.attribute
        return true if self.positive else true.outside(attribute.first, attribute.last)


class IsNull(Atom):
    """IS NULL, which is never unknown."""

    def found(self, literals: Literals) -> Intervals | None:
        attribute = self.attribute
        if not self.positive:
            return Intervals.between(attribute.first, attribute.last)
        return EMPTY if attribute.null is None else Intervals.between(attribute.null, attribute.null)


class Comparison(Atom):
    __slots__ = ("operand", "operator")

    def __init__(self, index: int, attribute: Attribute, positive: bool, operator: str, operand: Operand) -> None:
        super().__init__(index, attribute, positive)
        self.operator = operator
        self.operand = operand

    def found(self, literals: Literals) -> Intervals | None:
        literal = self.operand.of(literals)
        attribute = self.attribute
        if literal.kind == "n":
            if self.operator != "<=>":
                return EMPTY
            return IsNull(self.index, attribute, self.positive).found(literals)
        try:
            if isinstance(attribute.axis, LabelledAxis):
                true = self._between_edges(attribute.axis, *_edges(attribute, literal))
            elif isinstance(attribute.axis, EnumAxis):
                text, holds = _text_of(literal, attribute), _COMPARE[self.operator]
                true = _points(attribute.axis.ordinals(lambda value: holds(value, text)))
            elif literal.kind == "d" and isinstance(attribute.axis, IntAxis) and self.operator not in ("=", "<=>"):
                edges = coercion.int_beside_decimal(literal)
                if edges is None:  # Spark answers for NULL too
                    above = (literal.value < 0) == (self.operator in (">", ">="))
                    return None if above == self.positive else EMPTY
                true = self._between(*edges)
            else:
                true = self._between(*coercion.compared(attribute, literal))
        except ValueError as error:
            raise BadLiteral(self.operand.slot, _refusal(attribute, literal, error)) from None
        if self.operator == "<=>" and not self.positive:
            return true.outside(attribute.low, attribute.last)
        return self.true_or_false(true)

    def _between(self, below: int, upto: int) -> Intervals:
        low, high = self.attribute.first, self.attribute.last
        operator = self.operator
        if operator == "<":
            high = min(high, below)
        elif operator == "<=":
            high = min(high, upto)
        elif operator == ">":
            low = max(low, upto + 1)
        elif operator == ">=":
            low = max(low, below + 1)
        else:
            low, high = max(low, below + 1), min(high, upto)
        return Intervals((low, high) if low <= high else ())

    def _between_edges(self, axis: LabelledAxis, start: str | None, stop: str | None) -> Intervals:
        """Only the cuts that the operator needs are made: fewer gaps to tell apart."""
        if self.operator == "<":
            return Intervals.between(axis.first, axis.cut(start) - 1)
        if self.operator == "<=":
            return Intervals.between(axis.first, axis.cut(stop) - 1)
        if self.operator == ">":
            return Intervals.between(axis.cut(stop), axis.last)
        if self.operator == ">=":
            return Intervals.between(axis.cut(start), axis.last)
        return EMPTY if start == stop else Intervals.between(axis.cut(start), axis.cut(stop) - 1)


_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "=": lambda a, b: a == b,
    "<=>": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class Listed(Atom):
    """IN. With NULL in the list it is never FALSE."""

    __slots__ = ("slot",)

    def __init__(self, index: int, attribute: Attribute, positive: bool, slot: int) -> None:
        super().__init__(index, attribute, positive)
        self.slot = slot

    def found(self, literals: Literals) -> Intervals | None:
        members = literals[self.slot]
        assert isinstance(members, Members)
        kind, values = members
        if not kind:
            known = [literal for literal in values if literal.kind != "n"]
            has_null, values = len(known) < len(values), known
        else:
            has_null = False
        try:
            true = self._any_of(kind, values)  # also where it does not count: Spark refuses what cannot be compared
            return EMPTY if has_null and not self.positive else self.true_or_false(true)
        except ValueError as error:
            which = self._refused(kind, values)
            problem = f"attribute {self.attribute.name!r}: a member of the IN list {error}{which}"
            raise BadLiteral(self.slot, problem) from None

    def _refused(self, kind: str, values: list[Any]) -> str:
        """The member that cannot be, if it is one of the first."""
        for value in values[:MEMBERS_NAMED]:
            try:
                self._any_of(kind, [value])
            except ValueError:
                return f": {shown(value) if kind else literal_text(value)}"
        return ""

    def _any_of(self, kind: str, values: list[Any]) -> Intervals:
        """Where the attribute is one of these: plain strings, plain ints, or literals."""
        attribute = self.attribute
        axis = attribute.axis
        if isinstance(axis, StringAxis | EnumAxis):
            if kind != "s":
                values = [_text_of(literal, attribute) for literal in _literals(kind, values)]
            if isinstance(axis, EnumAxis):
                return _points(axis.ordinals(set(values).__contains__))
            return Intervals.of(axis.spans([(text, text + "\0") for text in values]))
        if isinstance(axis, LongDecimalAxis):
            listed = coercion.listed(attribute, _literals(kind, values))
            edges = [(axis.edge_at(below + 1), axis.edge_at(upto + 1)) for below, upto in listed]
            return Intervals.of(axis.spans([(start, stop) for start, stop in edges if start != stop]))
        low, high = attribute.first, attribute.last
        if kind == "i" and isinstance(axis, IntAxis):
            return Intervals.of([(value, value) for value in values if low <= value <= high])
        listed = coercion.listed(attribute, _literals(kind, values))
        return Intervals.of([(max(low, below + 1), min(high, upto)) for below, upto in listed])


def _edges(attribute: Attribute, literal: Literal) -> tuple[str | None, str | None]:
    """Where the values that equal a literal begin on a labelled axis, and where those above it do."""
    axis = attribute.axis
    if isinstance(axis, LongDecimalAxis):
        below, upto = coercion.compared(attribute, literal)
        return axis.edge_at(below + 1), axis.edge_at(upto + 1)
    text = _text_of(literal, attribute)
    return text, text + "\0"


def _literals(kind: str, values: list[Any]) -> list[Literal]:
    return [Literal(kind, value, 10) for value in values] if kind else values


class Like(Atom):
    __slots__ = ("escape", "pattern")

    def __init__(
        self, index: int, attribute: Attribute, positive: bool, pattern: Operand, escape: Operand | None
    ) -> None:
        super().__init__(index, attribute, positive)
        self.pattern = pattern
        self.escape = escape

    def found(self, literals: Literals) -> Intervals | None:
        literal = self.pattern.of(literals)
        if literal.kind == "n":
            return EMPTY
        axis = self.attribute.axis
        try:
            escape = "\\" if self.escape is None else _text_of(self.escape.of(literals), self.attribute)
            if len(escape) != 1:
                raise ValueError("has an ESCAPE that is not one character")
            parts = parts_of(_text_of(literal, self.attribute), escape)
            if isinstance(axis, EnumAxis):
                return self.true_or_false(_points(axis.ordinals(Pattern(parts).matches)))
            return self.true_or_false(self._prefixed(parts))
        except ValueError as error:
            refusal = _refusal(self.attribute, literal, error)
            raise BadLiteral(self.pattern.slot, refusal, "LIKE with more than a prefix") from None

    def _prefixed(self, parts: list[str]) -> Intervals:
        axis = self.attribute.axis
        assert isinstance(axis, StringAxis)
        end = len(parts)
        while end and parts[end - 1] == ANY:
            end -= 1
        if any(part in WILDCARDS for part in parts[:end]):
            raise ValueError("is not a constant prefix: `%` may only stand at the end, `_` nowhere")
        prefix = "".join(part[-1] for part in parts[:end])
        if end == len(parts):
            return Intervals.between(axis.cut(prefix), axis.cut(prefix + "\0") - 1)
        above = after_prefix(prefix)
        return Intervals.between(axis.cut(prefix), axis.last if above is None else axis.cut(above) - 1)


def _points(ordinals: list[int]) -> Intervals:
    return Intervals.of([(ordinal, ordinal) for ordinal in ordinals])


def _text_of(literal: Literal, attribute: Attribute) -> str:
    if literal.kind != "s":
        kind = attribute.axis.sql.partition("(")[0]
        raise ValueError(
            f"is {KIND_NAMES[literal.kind]} and cannot be compared with {coercion.article(kind)} attribute"
        )
    text: str = literal.value
    return text


def _refusal(attribute: Attribute, literal: Literal, error: ValueError) -> str:
    return f"attribute {attribute.name!r}: {literal_text(literal)} {error}"
