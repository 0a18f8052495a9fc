"""SQL WHERE to a region.

A clause is scanned into its shape and its literals (lexer.py). A new shape becomes a plan (plans.py): at once if it is
plain (plain.py), else it is parsed by sqlglot in Spark's dialect. Plans are kept, so clauses that differ only in
literals are parsed once. Running a plan with literals gives terms.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from thatch.errors import MALFORMED_CLAUSE, TOO_LARGE, CallerError, ClauseError, TooManyTerms, closest, shown
from thatch.region.region import Region
from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, EnumAxis, StringAxis
from thatch.space.decimals import DecimalAxis
from thatch.space.space import Space
from thatch.where import coercion
from thatch.where.hints import explained, value_hint
from thatch.where.lexer import (
    ARITHMETIC,
    BAD_LITERAL,
    MARK,
    PART,
    Sanitised,
    at,
    literal_offset,
    sanitised,
    scan,
)
from thatch.where.literals import Literal
from thatch.where.plain import plain_plan
from thatch.where.plans import (
    And,
    BadLiteral,
    ClausePlan,
    Comparison,
    Constant,
    ConstantComparison,
    IsNull,
    Like,
    Listed,
    Literals,
    Operand,
    Or,
    TooMany,
    Within,
)

if TYPE_CHECKING:
    from sqlglot import exp

COUNT_MAX = 64  # a clause of this many times the cap is refused at once, even if most of its terms may be empty
SHAPES_MAX = 1_024  # plans kept per space
SHAPE_SIZE_MAX = 2_048  # a longer one is not kept: a plan takes about 50 times as much as its shape


def compile_clause(clause: str, space: Space, terms_max: int, plans: dict[str, Any]) -> Region:
    """The region of a clause: what `Space.where` returns. `plans` keeps the plans of this space by clause shape."""
    if not isinstance(clause, str):
        raise CallerError(f"a clause is a string, not {type(clause).__name__}")
    try:
        return _compiled(clause, space, terms_max, plans)
    except ClauseError as error:
        raise explained(error, clause, space) from None


def _compiled(clause: str, space: Space, terms_max: int, plans: dict[str, Any]) -> Region:
    root, count, literals = plan_of(clause, space, plans)
    if count > COUNT_MAX * terms_max:
        raise TooManyTerms(count, terms_max)
    try:
        terms, codes = space.stable(lambda: root.terms(literals, terms_max))
    except BadLiteral as error:
        raise at(clause, literal_offset(clause, error.slot), error.rule, construct=error.construct) from None
    except TooMany:
        raise TooManyTerms(count, terms_max) from None
    region = Region(space, terms, codes)
    if len(region.terms) > terms_max:
        raise TooManyTerms(count, terms_max)
    return region


def plan_of(clause: str, space: Space, plans: dict[str, Any]) -> tuple[ClausePlan, int, Literals]:
    """The plan of a clause, how many terms it may need, and the literals to run it with."""
    shape, literals = scan(clause, space.zone)
    plan = plans.get(shape)
    if plan is None:
        tree = plain_plan(shape, space) or _planned(clause, shape, space)
        plan = tree, tree.count()
        if len(shape) <= SHAPE_SIZE_MAX:
            if len(plans) >= SHAPES_MAX:
                plans.pop(next(iter(plans)), None)  # the oldest
            plans[shape] = plan
    return (*plan, literals)


def _planned(clause: str, shape: str, space: Space) -> ClausePlan:
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
        raise at(clause, offset, f"the clause {what}", "`thatch help clauses` lists what is supported") from None
    except (errors.SqlglotError, RecursionError) as error:
        raise ClauseError(f"the clause cannot be parsed: {type(error).__name__}") from None
    try:
        return _Planner(clause, shape, clean, space).plan(tree, True)
    except RecursionError:
        rule = "the clause is nested too deep for what is left of the stack"
        raise ClauseError(rule, hint="simplify it", construct=TOO_LARGE) from None


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

    def plan(self, node: exp.Expr, positive: bool) -> ClausePlan:
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
                raise self.refusal(
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

    def comparison(self, node: exp.Expr, operator: str, positive: bool) -> ClausePlan:
        if operator in ("<>", "NOT <=>"):
            operator, positive = ("=" if operator == "<>" else "<=>"), not positive
        left, right = _bare(node.this, self.exp), _bare(node.expression, self.exp)
        if isinstance(right, self.exp.Column) and not isinstance(left, self.exp.Column):
            return self.compared(node, right, _FLIPPED[operator], left, positive)
        return self.compared(node, left, operator, right, positive)

    def compared(self, node: exp.Expr, left: exp.Expr, operator: str, right: exp.Expr, positive: bool) -> ClausePlan:
        exp = self.exp
        left, right = _bare(left, exp), _bare(right, exp)
        operand = self.operand(right)
        if operand is None:
            if isinstance(left, exp.Column) and isinstance(right, exp.Column):
                raise self.two_columns(left, right)
            raise self.unsupported(right)
        if isinstance(left, exp.Column):
            index, attribute = self.attribute(left)
            if operand.fixed is not None and operand.fixed.kind == "b" and not isinstance(attribute.axis, BoolAxis):
                place = self.word_after(left, "TRUE" if operand.fixed.value else "FALSE")
                kind = coercion.article(attribute.axis.sql.partition("(")[0])
                rule = f"attribute {attribute.name!r}: a bool cannot be compared with {kind} attribute"
                raise at(self.clause, place, rule, construct=BAD_LITERAL)
            return Comparison(index, attribute, positive, operator, operand)
        constant = self.operand(left)
        if constant is None:
            raise self.unsupported(left)
        return ConstantComparison(constant, operator, operand, positive)

    def two_columns(self, left: exp.Expr, right: exp.Expr) -> ClauseError:
        """A column compared with a column, or with a word that is none."""
        for one, other in ((left, right), (right, left)):
            known, name = self.space.index(".".join(one.name.split(PART))), other.name
            if known is not None and PART not in name and self.space.index(name) is None:
                hint = value_hint(name, self.space.attributes[known])
                return self.refusal(other, f"no attribute {shown(name)}", hint, f"unknown attribute {shown(name)}")
        for each in (left, right):
            self.attribute(each)
        two = "a column compared with a column"
        return self.refusal(right, f"{two} is not supported", "compare it with a literal", two)

    def listed(self, node: exp.Expr, positive: bool) -> ClausePlan:
        left = _bare(node.this, self.exp)
        members = node.args.get("expressions") or []
        if not isinstance(left, self.exp.Column):
            raise self.unsupported(left)
        index, attribute = self.attribute(left)
        operand = self.operand(members[0]) if len(members) == 1 else None
        # A list of literals is one literal by now (lexer.py); what is left is a list with something else in it.
        if operand is None or operand.fixed is not None or self.kinds[operand.slot] != "l":
            wrong = next((member for member in members if self.operand(member) is None), node)
            raise self.refusal(wrong, "an IN list holds literals only", construct="IN list with more than literals")
        return Listed(index, attribute, positive, operand.slot)

    def like(self, node: exp.Expr, positive: bool) -> ClausePlan:
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
            rule = f"LIKE needs a string, and {attribute.name!r} is {attribute.axis.sql}"
            raise self.refusal(left, rule, construct="LIKE of what is no string")
        return Like(index, attribute, positive, pattern, escape)

    def tested(self, node: exp.Expr, positive: bool) -> ClausePlan:
        """IS NULL, and IS TRUE or IS FALSE of a bool attribute, which are `<=> TRUE` and `<=> FALSE`."""
        left = _bare(node.this, self.exp)
        if not isinstance(left, self.exp.Column):
            rule = "IS applies to an attribute, not to a condition"
            raise self.refusal(left, rule, "write the condition out", "IS of a condition")
        index, attribute = self.attribute(left)
        if isinstance(node.expression, self.exp.Null):
            return IsNull(index, attribute, positive)
        if isinstance(node.expression, self.exp.Boolean) and isinstance(attribute.axis, BoolAxis):
            truth = Literal("b", bool(node.expression.this))
            return Comparison(index, attribute, positive, "<=>", Operand(-1, fixed=truth))
        raise self.refusal(left, "IS takes NULL, or TRUE and FALSE on a bool attribute")

    def within(self, node: exp.Expr, positive: bool) -> ClausePlan:
        usage = "within(radius, x, cx, y, cy, ...)"
        if not positive:
            hint = "a region is a union of boxes and balls"
            raise self.refusal(node, "NOT within is not supported", hint, "NOT within")
        radius, *pairs = node.expressions or [None]
        if radius is None or not pairs or len(pairs) % 2:
            raise self.refusal(node, f"`within` takes a radius and pairs of attribute and centre: {usage}")
        indices, centre = [], []
        for column, middle in zip(pairs[::2], pairs[1::2], strict=True):
            column = _bare(column, self.exp)
            if not isinstance(column, self.exp.Column):
                raise self.refusal(column, f"an attribute belongs here: {usage}")
            index, attribute = self.attribute(column)
            if not attribute.axis.is_number:
                numbers = "numbers of up to 18 digits" if isinstance(attribute.axis, DecimalAxis) else "numbers"
                raise self.refusal(column, f"`within` needs {numbers}, and {attribute.name!r} is {attribute.axis.sql}")
            if index in indices:
                raise self.refusal(column, f"`within` names {attribute.name!r} twice")
            indices.append(index)
            centre.append(self.needed(middle, usage))
        return Within(self.needed(radius, usage), tuple(indices), tuple(centre), self.space.attributes)

    def needed(self, node: exp.Expr, usage: str) -> Operand:
        operand = self.operand(node)
        if operand is None:
            raise self.refusal(node, f"a number belongs here: {usage}")
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
        path = node.name.split(PART)
        name = ".".join(path)
        index = self.space.index(name)
        if index is None or len(self.space.attributes[index].path) != len(path):
            if name.lower() in self.space.unusable:
                raise self.refusal(node, self.space.unusable[name.lower()], construct="column of an unsupported type")
            names = [attribute.name for attribute in self.space.attributes] + list(self.space.other_columns)
            if len(path) > 1 and name.lower() in map(str.lower, names):
                rule = f"no field {path[-1]!r} in a column {path[0]!r}"
                raise self.refusal(node, rule, f"there is a column whose name has a dot: write `{name}` in backticks")
            close = closest(name, names)
            if len(path) > 1 and self.space.index(path[-1]) is not None:
                hint = f"did you mean {path[-1]!r}? Table names are left out"
                raise self.refusal(node, f"no attribute {shown(name)}", hint, f"unknown attribute {shown(name)}")
            hint = f"did you mean {close!r}?" if close else f"attributes are: {', '.join(names[:12])}"
            raise self.refusal(node, f"no attribute {shown(name)}", hint, f"unknown attribute {shown(name)}")
        return index, self.space.attributes[index]

    def only(self, node: exp.Expr, *known: str) -> None:
        """Refuse parts of a node that we would otherwise ignore."""
        if any(value and key not in known for key, value in node.args.items()):
            raise self.unsupported(node)

    def unsupported(self, node: exp.Expr) -> ClauseError:
        exp = self.exp
        if isinstance(node, exp.Func):
            name = str(node.this) if isinstance(node, exp.Anonymous) else node.sql_name()
            what, hint = f"the function {name}", "compare attributes with literals"
            return self.refusal(node, f"{what} is not supported", hint, what)
        if isinstance(node, exp.Literal):
            return self.refusal(node, "a literal is not a condition", "compare an attribute with it")
        if isinstance(node, exp.Column):
            return self.refusal(node, "an attribute does not belong here", "compare attributes with literals")
        if isinstance(node, exp.Neg | exp.Binary) and not isinstance(node, exp.Connector | exp.Predicate):
            return self.refusal(node, "arithmetic is not supported", "write the value", ARITHMETIC)
        if isinstance(node, exp.Connector | exp.Predicate | exp.Not):
            return self.refusal(node, "a condition does not belong here", "compare attributes with literals")
        what = type(node).__name__
        return self.refusal(node, f"{what} is not supported", construct=what)

    def start(self, node: exp.Expr) -> int:
        """Where a node begins in the rewritten text: sqlglot knows the places of names and literals."""
        return min((each.meta["start"] for each in node.walk() if "start" in each.meta), default=0)

    def word_after(self, node: exp.Expr, word: str) -> int:
        """The place of a keyword after a node, which sqlglot does not know."""
        found = re.compile(rf"\b{word}\b").search(self.clean.text, self.start(node))
        return self.clean.offset(found.start() if found else self.start(node))

    def refusal(self, node: exp.Expr, rule: str, hint: str = "", construct: str = MALFORMED_CLAUSE) -> ClauseError:
        start = self.start(node)
        return at(self.clause, self.clean.offset(start), rule, hint, construct)


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
