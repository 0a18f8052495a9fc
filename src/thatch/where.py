"""SQL WHERE to a region.

A clause is scanned into its shape and its literals (lexer.py). A new shape is parsed by sqlglot in Spark's dialect
and becomes a plan: AND and OR over atoms, with every NOT pushed down to them. Plans are kept, so clauses that differ
only in literals are parsed once. Running a plan with literals gives terms.

Three-valued logic: an atom is TRUE, FALSE or unknown at a point. A plan asks each atom for the points where it is
TRUE, or, below an odd number of NOTs, for those where it is FALSE (Kleene: an AND is FALSE where one part is, an OR
where all are). What is unknown is in neither.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from thatch import coercion
from thatch.axis import BoolAxis, EnumAxis, IntAxis, StringAxis
from thatch.errors import CallerError, ClauseError, TooManyTerms, shown
from thatch.intervals import EMPTY, Intervals
from thatch.lexer import MARK, Sanitised, at, literal_offset, sanitised, scan
from thatch.literals import KIND_NAMES, Literal, Members, as_double, literal_text, negated
from thatch.region import Ball, Region, Term, simplified
from thatch.space import Attribute, Space

if TYPE_CHECKING:
    from sqlglot import exp

COUNT_MAX = 64  # a clause of this many times the cap is refused at once, even if most of its terms may be empty
PAIRS_MAX = 16  # an AND of two ORs tries at most this many times the cap of combinations
OR_MAX = 4  # an OR may gather this many times the cap, to be united and absorbed
SHAPES_MAX = 1_024  # plans kept per space
SHAPE_SIZE_MAX = 2_048  # a longer one is not kept: a plan takes about 50 times as much as its shape

Literals = Sequence[Literal | Members]


def compile_clause(clause: str, space: Space, terms_max: int = 1024) -> Region:
    """The region of a clause: `Space.where`."""
    if not isinstance(clause, str):
        raise CallerError(f"a clause is a string, not {type(clause).__name__}")
    shape, literals = scan(clause, space.zone)
    plans = space.plans
    plan = plans.get(shape)
    if plan is None:
        plan = _planned(clause, shape, space)
        plan = plan, plan.count()
        if len(shape) <= SHAPE_SIZE_MAX:
            if len(plans) >= SHAPES_MAX:
                plans.pop(next(iter(plans)), None)  # the oldest
            plans[shape] = plan
    root, count = plan
    if count > COUNT_MAX * terms_max:
        raise TooManyTerms(count, terms_max)
    try:
        while True:
            numbering = space.numbering
            terms = root.terms(literals, terms_max)
            if numbering is space.numbering:  # else a string axis was renumbered on the way: once more
                break
    except _BadLiteral as error:
        raise at(clause, literal_offset(clause, error.slot), error.rule) from None
    except _TooMany:
        raise TooManyTerms(count, terms_max) from None
    region = Region(space, terms, numbering)
    if len(region.terms) > terms_max:
        raise TooManyTerms(count, terms_max)
    return region


class _TooMany(Exception):
    """More terms than the cap, or too many ways to combine them; how many is counted afterwards."""


class _BadLiteral(Exception):
    """A literal does not suit its place; the clause, which a plan does not know, tells where it stands."""

    def __init__(self, slot: int, rule: str) -> None:
        super().__init__(rule)
        self.slot = slot
        self.rule = rule


# --- Plans -----------------------------------------------------------------------------------------------------------


class Plan:
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
class And(Plan):
    """AND. Parts on one attribute are intersected before they become terms."""

    parts: tuple[Plan, ...]
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
                raise _TooMany
            found = [both for one in found for other in terms if (both := one & other) is not None]
            if len(found) > terms_max:
                found = simplified(found, self.space)
                if len(found) > terms_max:
                    raise _TooMany
        return found

    def count(self) -> int:
        return prod(part.count() for part in self.parts)

    def one_attribute(self) -> int | None:
        return _common([part.one_attribute() for part in self.parts])


@dataclass(frozen=True, slots=True)
class Or(Plan):
    """OR. Parts on one attribute are united before they become terms."""

    parts: tuple[Plan, ...]
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
                raise _TooMany
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
class Constant(Plan):
    holds: bool

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        return [Term()] if self.holds else []


@dataclass(frozen=True, slots=True)
class ConstantComparison(Plan):
    """Two literals beside each other."""

    left: Operand
    operator: str
    right: Operand
    positive: bool

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        try:
            holds = coercion.constant(self.left.of(literals), self.operator, self.right.of(literals))
        except ValueError as error:
            raise _BadLiteral(max(self.right.slot, self.left.slot), f"a literal {error}") from None
        return [Term()] if holds is self.positive else []


@dataclass(frozen=True, slots=True)
class Within(Plan):
    """A ball. Only ever positive: what is outside a ball is no term."""

    radius: Operand
    indices: tuple[int, ...]
    centre: tuple[Operand, ...]
    attributes: tuple[Attribute, ...]

    def terms(self, literals: Literals, terms_max: int) -> list[Term]:
        numbers = [self._double(operand, literals) for operand in (self.radius, *self.centre)]
        radius, *centre = numbers
        if radius is not None and not radius >= 0:
            raise _BadLiteral(self.radius.slot, f"the radius {radius!r} of `within` is not 0 or more")
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
            raise _BadLiteral(operand.slot, f"a number in `within` {error}") from None


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


class Atom(Plan):
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
    """Never unknown."""

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
            if isinstance(attribute.axis, StringAxis):
                true = self._string(attribute.axis, literal)
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
            raise _BadLiteral(self.operand.slot, _refusal(attribute, literal, error)) from None
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

    def _string(self, axis: StringAxis, literal: Literal) -> Intervals:
        """Only the cuts that the operator needs are made: fewer gaps to tell apart."""
        text = _text_of(literal, self.attribute)
        if self.operator == "<":
            return Intervals.between(axis.first, axis.cut(text) - 1)
        if self.operator == "<=":
            return Intervals.between(axis.first, axis.cut(text + "\0") - 1)
        if self.operator == ">":
            return Intervals.between(axis.cut(text + "\0"), axis.last)
        if self.operator == ">=":
            return Intervals.between(axis.cut(text), axis.last)
        return Intervals.between(axis.cut(text), axis.cut(text + "\0") - 1)


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
            if not self.positive and len(known) < len(values):
                return EMPTY
            values = known
        try:
            return self.true_or_false(self._any_of(kind, values))
        except ValueError as error:
            raise _BadLiteral(
                self.slot, f"attribute {self.attribute.name!r}: a member of the IN list {error}"
            ) from None

    def _any_of(self, kind: str, values: list[Any]) -> Intervals:
        """Where the attribute is one of these: plain strings, plain ints, or literals."""
        attribute = self.attribute
        axis = attribute.axis
        if isinstance(axis, StringAxis | EnumAxis):
            if kind != "s":
                values = [_text_of(literal, attribute) for literal in _literals(kind, values)]
            if isinstance(axis, EnumAxis):
                return _points(axis.ordinals(set(values).__contains__))
            axis.cut_many([end for text in values for end in (text, text + "\0")])
            return Intervals.of(axis.labels.spans(values))
        low, high = attribute.first, attribute.last
        if kind == "i" and isinstance(axis, IntAxis):
            return Intervals.of([(value, value) for value in values if low <= value <= high])
        edges = coercion.listed(attribute, _literals(kind, values))
        return Intervals.of([(max(low, below + 1), min(high, upto)) for below, upto in edges])


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
            parts = _pattern(_text_of(literal, self.attribute), escape)
            if isinstance(axis, EnumAxis):
                matches = re.compile(
                    "".join(_LIKE.get(part, re.escape(part[-1])) for part in parts), re.DOTALL
                ).fullmatch
                return self.true_or_false(_points(axis.ordinals(lambda value: matches(value) is not None)))
            return self.true_or_false(self._prefixed(parts))
        except ValueError as error:
            raise _BadLiteral(self.pattern.slot, _refusal(self.attribute, literal, error)) from None

    def _prefixed(self, parts: list[str]) -> Intervals:
        axis = self.attribute.axis
        assert isinstance(axis, StringAxis)
        end = len(parts)
        while end and parts[end - 1] == "%":
            end -= 1
        if any(part in _LIKE for part in parts[:end]):
            raise ValueError("is not a constant prefix: `%` may only stand at the end, `_` nowhere")
        prefix = "".join(part[-1] for part in parts[:end])
        if end == len(parts):
            return Intervals.between(axis.cut(prefix), axis.cut(prefix + "\0") - 1)
        above = after_prefix(prefix)
        return Intervals.between(axis.cut(prefix), axis.last if above is None else axis.cut(above) - 1)


_LIKE = {"%": ".*", "_": "."}


def _pattern(pattern: str, escape: str) -> list[str]:
    """The parts of a LIKE pattern: `%`, `_`, and ordinary characters, those that were escaped with a backslash
    before them."""
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("%", "_", escape):
                raise ValueError(f"has the escape character {escape!r} before {following or 'its end'!r}")
            parts.append("\\" + following)
        elif character in _LIKE:
            parts.append(character)
        else:
            parts.append("\\" + character)
    return parts


def after_prefix(prefix: str) -> str | None:
    """The least string above all that start with this prefix; None if there is none.

    >>> after_prefix("ab"), after_prefix("a\\U0010ffff"), after_prefix("")
    ('ac', 'b', None)
    """
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1])
        if code < 0x10FFFF:
            return prefix[: end - 1] + chr(0xE000 if code == 0xD7FF else code + 1)
    return None


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


# --- From sqlglot's tree to a plan -----------------------------------------------------------------------------------


def _planned(clause: str, shape: str, space: Space) -> Plan:
    import sqlglot
    from sqlglot import errors, exp

    clean = sanitised(clause, shape)
    try:
        tree = sqlglot.parse_one(clean.text, dialect="spark", into=exp.Condition)
    except errors.ParseError as error:
        details = error.errors[0] if error.errors else {}
        offset = _parse_offset(clean, details, clause)
        near = clause[offset : offset + 20].strip()
        what = f"is malformed near {shown(near)}" if near else "ends too early"
        raise at(clause, offset, f"the clause {what}", "see the supported grammar in the README") from None
    except (errors.SqlglotError, RecursionError) as error:
        raise ClauseError(f"the clause cannot be parsed: {type(error).__name__}") from None
    try:
        return _Planner(clause, shape, clean, space).plan(tree, True)
    except RecursionError:
        raise ClauseError("the clause is nested too deep for what is left of the stack", hint="simplify it") from None


def _parse_offset(clean: Sanitised, details: dict[str, Any], clause: str) -> int:
    before = details.get("start_context")
    column = details.get("col")
    if column is None or before is None:
        return len(clause)
    start = int(column) - len(str(details.get("highlight") or ""))
    return len(clause) if start >= len(clean.text) - 1 else clean.offset(max(start, 0))


class _Planner:
    """Walks sqlglot's tree. What it does not know it refuses, by name and place."""

    def __init__(self, clause: str, shape: str, clean: Sanitised, space: Space) -> None:
        from sqlglot import exp

        self.clause = clause
        self.kinds = [kind[0] for kind in shape.split(MARK)[1:]]  # of the literals
        self.clean = clean
        self.space = space
        self.exp = exp
        self.comparisons: dict[type[exp.Expr], str] = {
            exp.EQ: "=",
            exp.NEQ: "<>",
            exp.LT: "<",
            exp.LTE: "<=",
            exp.GT: ">",
            exp.GTE: ">=",
            exp.NullSafeEQ: "<=>",
            exp.NullSafeNEQ: "NOT <=>",
        }

    def plan(self, node: exp.Expr, positive: bool) -> Plan:
        exp = self.exp
        while isinstance(node, exp.Paren | exp.Not):
            positive ^= isinstance(node, exp.Not)
            node = node.this
        positive ^= bool(node.args.get("negate"))
        if not isinstance(node, exp.Func):
            self.only(node, "this", "expression", "expressions", "low", "high", "negate")
        if isinstance(node, exp.And | exp.Or):
            parts = tuple(self.plan(part, positive) for part in _flattened(node))
            kind = And if isinstance(node, exp.And) == positive else Or
            return kind(parts, self.space)
        operator = self.comparisons.get(type(node))
        if operator is not None:
            return self.comparison(node, operator, positive)
        if isinstance(node, exp.Between):
            parts = (
                self.compared(node, node.this, ">=", node.args["low"], positive),
                self.compared(node, node.this, "<=", node.args["high"], positive),
            )
            return And(parts, self.space) if positive else Or(parts, self.space)
        if isinstance(node, exp.In):
            return self.listed(node, positive)
        if isinstance(node, exp.Like | exp.Escape):
            return self.like(node, positive)
        if isinstance(node, exp.Is):
            return self.tested(node, positive)
        if isinstance(node, exp.Column):
            index, attribute = self.attribute(node)
            if not isinstance(attribute.axis, BoolAxis):
                raise self.refused(
                    node, f"{attribute.name!r} is not a condition: it is {attribute.axis.sql}", "compare it"
                )
            return Comparison(index, attribute, positive, "=", Operand(-1, fixed=Literal("b", True)))
        if isinstance(node, exp.Boolean):
            return Constant(bool(node.this) == positive)
        if isinstance(node, exp.Null):
            return Constant(False)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "within":
            return self.within(node, positive)
        raise self.unsupported(node)

    def comparison(self, node: exp.Expr, operator: str, positive: bool) -> Plan:
        if operator in ("<>", "NOT <=>"):
            operator, positive = ("=" if operator == "<>" else "<=>"), not positive
        left, right = _bare(node.this, self.exp), _bare(node.expression, self.exp)
        if isinstance(right, self.exp.Column) and not isinstance(left, self.exp.Column):
            return self.compared(node, right, _FLIPPED[operator], left, positive)
        return self.compared(node, left, operator, right, positive)

    def compared(self, node: exp.Expr, left: exp.Expr, operator: str, right: exp.Expr, positive: bool) -> Plan:
        exp = self.exp
        left, right = _bare(left, exp), _bare(right, exp)
        operand = self.operand(right)
        if operand is None:
            if isinstance(left, exp.Column) and isinstance(right, exp.Column):
                raise self.refused(
                    right, "a column compared with a column is not supported", "compare it with a literal"
                )
            raise self.unsupported(right)
        if isinstance(left, exp.Column):
            index, attribute = self.attribute(left)
            if operand.fixed is not None and operand.fixed.kind == "b" and not isinstance(attribute.axis, BoolAxis):
                place = self.word_after(left, "TRUE" if operand.fixed.value else "FALSE")
                kind = coercion.article(attribute.axis.sql.partition("(")[0])
                rule = f"attribute {attribute.name!r}: a bool cannot be compared with {kind} attribute"
                raise at(self.clause, place, rule)
            return Comparison(index, attribute, positive, operator, operand)
        constant = self.operand(left)
        if constant is None:
            raise self.unsupported(left)
        return ConstantComparison(constant, operator, operand, positive)

    def listed(self, node: exp.Expr, positive: bool) -> Plan:
        left = _bare(node.this, self.exp)
        members = node.args.get("expressions") or []
        if not isinstance(left, self.exp.Column):
            raise self.unsupported(left)
        index, attribute = self.attribute(left)
        operand = self.operand(members[0]) if len(members) == 1 else None
        # A list of literals is one literal by now (lexer.py); what is left is a list with something else in it.
        if operand is None or operand.fixed is not None or self.kinds[operand.slot] != "l":
            wrong = next((member for member in members if self.operand(member) is None), node)
            raise self.refused(wrong, "an IN list holds literals only")
        return Listed(index, attribute, positive, operand.slot)

    def like(self, node: exp.Expr, positive: bool) -> Plan:
        escape = None
        if isinstance(node, self.exp.Escape):
            escape = self.operand(node.expression)
            if escape is None or not isinstance(node.this, self.exp.Like):
                raise self.unsupported(node.this)
            node = node.this
            self.only(node, "this", "expression", "negate")
            positive ^= bool(node.args.get("negate"))
        left = _bare(node.this, self.exp)
        pattern = self.operand(node.expression)
        if not isinstance(left, self.exp.Column) or pattern is None:
            raise self.unsupported(node.expression if pattern is None else left)
        index, attribute = self.attribute(left)
        if not isinstance(attribute.axis, StringAxis | EnumAxis):
            raise self.refused(left, f"LIKE needs a string, and {attribute.name!r} is {attribute.axis.sql}")
        return Like(index, attribute, positive, pattern, escape)

    def tested(self, node: exp.Expr, positive: bool) -> Plan:
        """IS NULL, and IS TRUE or IS FALSE of a bool attribute, which are `<=> TRUE` and `<=> FALSE`."""
        left = _bare(node.this, self.exp)
        if not isinstance(left, self.exp.Column):
            raise self.refused(left, "IS applies to an attribute, not to a condition", "write the condition out")
        index, attribute = self.attribute(left)
        if isinstance(node.expression, self.exp.Null):
            return IsNull(index, attribute, positive)
        if isinstance(node.expression, self.exp.Boolean) and isinstance(attribute.axis, BoolAxis):
            truth = Literal("b", bool(node.expression.this))
            return Comparison(index, attribute, positive, "<=>", Operand(-1, fixed=truth))
        raise self.refused(left, "IS takes NULL, or TRUE and FALSE on a bool attribute")

    def within(self, node: exp.Expr, positive: bool) -> Plan:
        usage = "within(radius, x, cx, y, cy, ...)"
        if not positive:
            raise self.refused(node, "NOT within is not supported", "a region is a union of boxes and balls")
        radius, *pairs = node.expressions or [None]
        if radius is None or not pairs or len(pairs) % 2:
            raise self.refused(node, f"`within` takes a radius and pairs of attribute and centre: {usage}")
        indices, centre = [], []
        for column, middle in zip(pairs[::2], pairs[1::2], strict=True):
            column = _bare(column, self.exp)
            if not isinstance(column, self.exp.Column):
                raise self.refused(column, f"an attribute belongs here: {usage}")
            index, attribute = self.attribute(column)
            if not attribute.axis.is_number:
                raise self.refused(column, f"`within` needs numbers, and {attribute.name!r} is {attribute.axis.sql}")
            if index in indices:
                raise self.refused(column, f"`within` names {attribute.name!r} twice")
            indices.append(index)
            centre.append(self.needed(middle, usage))
        return Within(self.needed(radius, usage), tuple(indices), tuple(centre), self.space.attributes)

    def needed(self, node: exp.Expr, usage: str) -> Operand:
        operand = self.operand(node)
        if operand is None:
            raise self.refused(node, f"a number belongs here: {usage}")
        return operand

    def operand(self, node: exp.Expr) -> Operand | None:
        exp = self.exp
        node = _bare(node, exp)
        if isinstance(node, exp.Null):
            return Operand(-1, fixed=Literal("n", None))
        if isinstance(node, exp.Boolean):
            return Operand(-1, fixed=Literal("b", bool(node.this)))
        negative = isinstance(node, exp.Neg)
        literal = node.this if negative else node
        if isinstance(literal, exp.Literal) and literal.is_string:
            return Operand(int(literal.this), negative)
        return None

    def attribute(self, node: exp.Expr) -> tuple[int, Attribute]:
        self.only(node, "this")
        name = node.name
        index = self.space.index(name)
        if index is None:
            names = [attribute.name for attribute in self.space.attributes]
            close = difflib.get_close_matches(name.lower()[:80], [each.lower() for each in names[:200]], 1)
            hint = f"did you mean {close[0]!r}?" if close else f"attributes are: {', '.join(names[:12])}"
            raise self.refused(node, f"no attribute {shown(name)}", hint)
        return index, self.space.attributes[index]

    def only(self, node: exp.Expr, *known: str) -> None:
        """Refuse parts of a node that we would otherwise ignore."""
        if any(value and key not in known for key, value in node.args.items()):
            raise self.unsupported(node)

    def unsupported(self, node: exp.Expr) -> ClauseError:
        exp = self.exp
        if isinstance(node, exp.Func):
            name = str(node.this) if isinstance(node, exp.Anonymous) else node.sql_name()
            return self.refused(node, f"the function {name} is not supported", "compare attributes with literals")
        if isinstance(node, exp.Literal):
            return self.refused(node, "a literal is not a condition", "compare an attribute with it")
        if isinstance(node, exp.Column):
            return self.refused(node, "an attribute does not belong here", "compare attributes with literals")
        if isinstance(node, exp.Neg | exp.Binary) and not isinstance(node, exp.Connector | exp.Predicate):
            return self.refused(node, "arithmetic is not supported", "write the value")
        if isinstance(node, exp.Connector | exp.Predicate | exp.Not):
            return self.refused(node, "a condition does not belong here", "compare attributes with literals")
        return self.refused(node, f"{type(node).__name__} is not supported")

    def start(self, node: exp.Expr) -> int:
        """Where a node begins in the rewritten text: sqlglot knows the places of names and literals."""
        return min((each.meta["start"] for each in node.walk() if "start" in each.meta), default=0)

    def word_after(self, node: exp.Expr, word: str) -> int:
        """The place of a keyword after a node, which sqlglot does not know."""
        found = re.compile(rf"\b{word}\b").search(self.clean.text, self.start(node))
        return self.clean.offset(found.start() if found else self.start(node))

    def refused(self, node: exp.Expr, rule: str, hint: str = "") -> ClauseError:
        start = self.start(node)
        return at(self.clause, self.clean.offset(start), rule, hint)


_FLIPPED = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _bare(node: exp.Expr, exp_module: Any) -> exp.Expr:
    while isinstance(node, exp_module.Paren):
        node = node.this
    return node


def _flattened(node: exp.Expr) -> list[exp.Expr]:
    """The parts of a chain of one connector, in order, without recursion: chains can be thousands long."""
    kind, parts, waiting = type(node), [], [node]
    while waiting:
        each = waiting.pop()
        if type(each) is kind:
            waiting += (each.expression, each.this)
        else:
            parts.append(each)
    return parts
