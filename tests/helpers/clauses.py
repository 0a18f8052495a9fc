"""Random WHERE clauses: the material of test_where_spark.py.

A `ClauseWriter` writes one clause at a time from a seeded generator. Every grammar rule it uses is noted by
name and must be listed in `RULES`; the test asserts that each listed rule was reached. `within` is ours, so a
clause carries two texts, ours and Spark's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from helpers.clause_literals import LiteralWriter, is_nan
from helpers.clause_rows import COLUMNS, Column

RULES = frozenset(
    rule.strip()
    for rule in """
    = | == | <> | != | < | <= | > | >= | <=> | literal first | compare with NULL | between | not between
    between with NULL | in | not in | in one | in sixty | in with NULL | in mixed kinds
    like prefix | like exact | like % | like '' | like any | not like | like backslash escape
    like own escape | is null | is not null | is distinct from | is not distinct from
    bare bool | is true | is not true | is false | is not false | is unknown | is not unknown
    and | or | not | ! | not not | parentheses | depth 4 | constant | NULL constant
    within | within 1 | within 2 | within 3 | within 4 | within NULL | within under not not
    integer | L | S | Y | sign apart | decimal | decimal .5 | decimal 5. | BD | D | exponent | F
    beyond int64 | many digits | beyond domain | string as int | string as double | string not finite
    date | timestamp | string as date | string as timestamp | partial date | partial timestamp
    date with time | timestamp for date | date for timestamp | T separator | fraction | zone offset
    zone name | padded string | 'text' | "text" | raw text | quote doubled | quote escaped | named escape
    octal escape | unicode escape | backslash kept | needless escape | own text | bool
    other case | backticks | white space | comment
    """.replace("\n", "|").split("|")
    if rule.strip()
)


@dataclass(frozen=True)
class Clause:
    ours: str
    spark: str
    rules: frozenset[str]


# Placeholders until the clause is finished: where white space stands, and where the n-th `within` does.
_GAP = "\ue000"
_WITHIN = "\ue001"
_RADII = ("0", "1", "5.5", "100", "1e3", "250BD", "1e19", "1e200", "30F", "7L", "4e18D")


def spelled_out(radius: str, pairs: Sequence[tuple[str, str]]) -> str:
    """What `within(radius, name, centre, …)` means, in Spark's own words."""
    differences = [f"(CAST({name} AS DOUBLE) - CAST({centre} AS DOUBLE))" for name, centre in pairs]
    total = " + ".join(f"{each} * {each}" for each in differences)
    return f"({total} <= CAST({radius} AS DOUBLE) * CAST({radius} AS DOUBLE))"


class ClauseWriter(LiteralWriter):
    """Writes random clauses; `counts` says how many of them used each rule."""

    def __init__(self, random: Random, columns: Sequence[Column] = COLUMNS) -> None:
        super().__init__(random)
        self.columns = columns
        self.counts: Counter[str] = Counter()
        self._withins: list[tuple[str, str]] = []

    def clause(self) -> Clause:
        self.rules, self._withins = set(), []
        text = self._spaced(self._tree(self.random.choice((1, 1, 2, 3, 4, 6)), 0, True, 0))
        ours = spark = text
        for place, (our_within, spark_within) in enumerate(self._withins):
            ours = ours.replace(f"{_WITHIN}{place};", our_within)
            spark = spark.replace(f"{_WITHIN}{place};", spark_within)
        assert RULES.issuperset(self.rules), self.rules - RULES
        self.counts.update(self.rules)
        return Clause(ours, spark, frozenset(self.rules))

    # Logic

    def _tree(self, leaves: int, depth: int, positive: bool, binding: int) -> str:
        """An expression that binds at least as tightly as asked: 0 OR, 1 AND, 2 NOT.

        `positive` is False under an odd number of NOTs, where `within` may not stand.
        """
        if depth >= 4:
            self.note("depth 4")
        if self.chance(0.25):
            return self._negation(leaves, depth, positive)
        if leaves == 1:
            return self._leaf(positive, alone=depth == 0)
        own, word = self.random.choice(((0, "or"), (1, "and")))
        self.note(word)
        left = self.random.randint(1, leaves - 1)
        sides = [self._tree(n, depth + 1, positive, own) for n in (left, leaves - left)]
        text = f"{_GAP}{self.keyword(word)}{_GAP}".join(sides)
        return self._in_parentheses(text) if own < binding or self.chance(0.2) else text

    def _negation(self, leaves: int, depth: int, positive: bool) -> str:
        word = self.random.choice(("not", "not", "!"))
        self.note(word)
        if depth < 5 and self.chance(0.2):
            self.note("not not")
            operand = self._negation(leaves, depth + 1, not positive)
        else:
            operand = self._tree(leaves, depth + 1, not positive, 2)
        if self.chance(0.3):
            operand = self._in_parentheses(operand)
        return self.keyword(word) + ("" if word == "!" and self.chance(0.5) else _GAP) + operand

    def _in_parentheses(self, text: str) -> str:
        self.note("parentheses")
        return f"({text})"

    def _spaced(self, text: str) -> str:
        first, *rest = text.split(_GAP)
        return first + "".join(self._blank() + part for part in rest)

    def _blank(self) -> str:
        if self.chance(0.85):
            return " "
        blank = self.random.choice(("  ", "\n", "\t \n", " /* OR it's */ ", "/**/", " -- AND 'x\n"))
        self.note("comment" if "*" in blank or "-" in blank else "white space")
        return blank

    # Atoms

    def _leaf(self, positive: bool, alone: bool) -> str:
        if self.chance(0.02) and not alone:  # Spark refuses `WHERE NULL`
            return self._constant()
        if self.chance(0.08):
            if positive:
                return self._within()
            if self.chance(0.5):  # an odd number of NOTs so far: one more makes it even
                self.note("within under not not")
                return f"NOT{_GAP}{self._within()}"
        column = self.random.choice(self.columns)
        atoms = [self._comparison] * 4 + [self._between] * 3 + [self._in] * 3 + [self._null, self._distinct]
        if column.family == "bool":
            atoms = [self._comparison, self._between, self._in, self._null, self._distinct]
            atoms += [self._truth] * 3
        if column.family in ("string", "enum"):
            atoms += [self._like] * 4
        return self.random.choice(atoms)(column)

    def _constant(self) -> str:
        word = self.random.choice(("TRUE", "FALSE", "NULL", "true"))
        self.note("NULL constant" if word == "NULL" else "constant")
        return word

    def _comparison(self, column: Column) -> str:
        operator = self.random.choice(("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"))
        self.note(operator)
        if self.chance(0.04):
            self.note("compare with NULL")
            literal = "NULL"
        else:
            literal = self.literal(column, self.value(column))
        sides = [self._name(column), literal]
        if self.chance(0.35):
            self.note("literal first")
            sides.reverse()
        gap = _GAP if self.chance(0.8) else ""
        return f"{gap}{operator}{gap}".join(sides)

    def _between(self, column: Column) -> str:
        bounds = [self.value(column), self.value(column)]
        if self.chance(0.8):
            bounds.sort(key=lambda value: (is_nan(value), value))
        texts = [self.literal(column, value) for value in bounds]
        if self.chance(0.08):
            self.note("between with NULL")
            texts[self.random.randrange(2)] = "NULL"
        word = self.random.choice(("between", "not between"))
        self.note(word)
        words = self.keyword(word).replace(" ", _GAP)
        return f"{self._name(column)}{_GAP}{words}{_GAP}{texts[0]}{_GAP}{self.keyword('and')}{_GAP}{texts[1]}"

    def _in(self, column: Column) -> str:
        size = self.random.choice((1, 2, 3, 5, 60 if self.chance(0.15) else 8))
        values = [self.value(column) for _ in range(size)]
        forms = self.forms(column, values[0])
        form = None if self.chance(0.5) else self.random.choice(list(forms))
        texts = [self.literal(column, value, form) for value in values]
        word = self.random.choice(("in", "not in"))
        self.note(word)
        if form is None and size > 1:
            self.note("in mixed kinds")
        if size in (1, 60):
            self.note("in one" if size == 1 else "in sixty")
        if self.chance(0.08):
            self.note("in with NULL")
            texts.insert(self.random.randrange(size + 1), "NULL")
        comma = self.random.choice((",", ", ", f",{_GAP}"))
        return f"{self._name(column)}{_GAP}{self.keyword(word).replace(' ', _GAP)}{_GAP}({comma.join(texts)})"

    def _null(self, column: Column) -> str:
        word = self.random.choice(("is null", "is not null"))
        self.note(word)
        return f"{self._name(column)}{_GAP}{self.keyword(word).replace(' ', _GAP)}"

    def _distinct(self, column: Column) -> str:
        word = self.random.choice(("is distinct from", "is not distinct from"))
        literal = "NULL" if self.chance(0.1) else self.literal(column, self.value(column))
        self.note(word)
        return f"{self._name(column)}{_GAP}{self.keyword(word).replace(' ', _GAP)}{_GAP}{literal}"

    def _truth(self, column: Column) -> str:
        words = ("is true", "is not true", "is false", "is not false", "is unknown", "is not unknown")
        word = self.random.choice(("", "", *words))
        self.note(word or "bare bool")
        return self._name(column) + (_GAP + self.keyword(word).replace(" ", _GAP) if word else "")

    def _like(self, column: Column) -> str:
        value, escape = str(self.value(column)), self.random.choice("\\\\\\!/")
        pattern = "".join(escape + each if each in ("%", "_", escape) else each for each in value)
        if escape in pattern:
            self.note("like backslash escape" if escape == "\\" else "like own escape")
        kind = self.random.choice(("like prefix", "like prefix", "like exact", "like %", "like ''"))
        if column.family == "enum":
            kind = "like any"
            pieces = [escape + each if each in ("%", "_", escape) else each for each in value]
            pattern = "".join(self.random.choice((piece, piece, "_", "%", "%" + piece)) for piece in pieces)
        elif kind == "like %":
            pattern = "%"
        elif kind == "like ''":
            pattern = ""
        elif kind == "like prefix":
            pattern += "%"
        self.note(kind)
        word = "like" if self.chance(0.6) else "not like"
        if word == "not like":
            self.note(word)
        words = self.keyword(word).replace(" ", _GAP)
        text = f"{self._name(column)}{_GAP}{words}{_GAP}{self.text(pattern)}"
        return text if escape == "\\" else f"{text}{_GAP}{self.keyword('escape')}{_GAP}'{escape}'"

    def _within(self) -> str:
        numbers = [each for each in self.columns if each.is_number]
        chosen = self.random.sample(numbers, self.random.choice((1, 1, 2, 2, 3, 4)))
        self.note("within", f"within {len(chosen)}")
        radius = self.random.choice(_RADII)
        centres = [self.literal(each, self.value(each), numeric=True) for each in chosen]
        if self.chance(0.06):
            self.note("within NULL")
            radius, centres[0] = self.random.choice((("NULL", centres[0]), (radius, "NULL")))
        pairs = [(self._name(each), centre) for each, centre in zip(chosen, centres, strict=True)]
        arguments = [radius, *(f"{name},{_GAP}{centre}" for name, centre in pairs)]
        ours = self._spaced(f"{self.keyword('within')}({f',{_GAP}'.join(arguments)})")
        self._withins.append((ours, spelled_out(radius, pairs)))
        return f"{_WITHIN}{len(self._withins) - 1};"

    def _name(self, column: Column) -> str:
        if self.chance(0.8):
            return column.name
        if self.chance(0.5):
            self.note("other case")
            return self.random.choice((column.name.upper(), column.name.title()))
        self.note("backticks")
        return f"`{self.random.choice((column.name, column.name.title()))}`"
