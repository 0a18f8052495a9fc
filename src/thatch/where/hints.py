"""What a refused clause was probably meant to say: what is wrong in plain words, where, and what to write instead.

Nothing here decides whether a clause is accepted. `explained` looks at the tokens around the place of a refusal, at
most `REACH` characters each way, for what people write out of habit: `=>`, `WHERE …`, a typographic quote. Each pattern
is of something that no clause may hold, so it is what has to be corrected, wherever the parser stumbled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from thatch.errors import TOO_LARGE, ClauseError, closest
from thatch.space.attribute import Attribute
from thatch.space.axis import BoolAxis, DateAxis, EnumAxis, StringAxis, TimestampAxis, TimestampNtzAxis, quoted
from thatch.space.floating import FloatingAxis
from thatch.space.space import Space
from thatch.where.lexer import ADVICE, COMPARISONS, GRAMMAR, REFUSED, RESERVED, at, token_pattern

REACH = 200  # characters before and after the place of a refusal
SHOWN = 40  # characters of a token that a hint repeats
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "==": "<>", "<>": "=", "!=": "="}
TESTS = frozenset("BETWEEN IN LIKE IS NOT".split())  # words that may stand where a comparison does
PREFIX = "LIKE 'a%' for a prefix"
# What other languages call operators.
OPERATORS = {
    "NOTNULL": "write IS NOT NULL",
    "ISNULL": "write IS NULL",
    **dict.fromkeys("GREATER MORE ABOVE OVER AFTER GT".split(), "write >"),
    **dict.fromkeys("LESS BELOW UNDER BEFORE LT".split(), "write <"),
    **dict.fromkeys("GTE GE".split(), "write >="),
    **dict.fromkeys("LTE LE".split(), "write <="),
    **dict.fromkeys("EQUALS EQUAL EQ".split(), "write ="),
    **dict.fromkeys("NE NEQ".split(), "write <>"),
    **dict.fromkeys("CONTAINS STARTSWITH STARTS BEGINS BEGINSWITH HAS MATCHES MATCH GLOB SIMILAR".split(), PREFIX),
}
ABSENT = frozenset("NONE NIL NUL NAN NA MISSING EMPTY BLANK UNDEFINED".split())  # after IS
DATE = re.compile(r"[0-9]{4}([-/])[0-9]{1,2}\1[0-9]{1,2}(?![\w-])(?:[ T][0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?")


class Token(NamedTuple):
    kind: str  # "literal", "digits" that are no number, "name", "word", "operator" or "other"
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def word(self) -> str:
        """A word in capitals; else the text as it is."""
        return self.text.upper() if self.kind == "word" and self.text.isascii() else self.text

    @property
    def is_text(self) -> bool:
        return self.kind == "literal" and self.text[0] in "'\""

    @property
    def is_number(self) -> bool:
        return self.kind == "literal" and self.text[0] in "0123456789."

    @property
    def is_named(self) -> bool:
        """Whether it may be the name of an attribute."""
        return self.kind == "name" or (self.kind == "word" and self.word not in RESERVED)

    @property
    def is_comparison(self) -> bool:
        return self.kind == "operator" and self.text in COMPARISONS


NOTHING = Token("", "", 0)


class Hint(NamedTuple):
    """What is wrong at a token; without a rule, that of the refusal stays."""

    token: Token
    rule: str
    hint: str


class _Around:
    """The tokens around a place of a clause."""

    def __init__(self, clause: str, offset: int, space: Space) -> None:
        self.clause, self.space, self.offset = clause, space, offset
        self.end = min(offset + REACH, len(clause))
        start = max(offset - REACH, 0)
        self.has_start, self.has_end = start == 0, self.end == len(clause)
        self.tokens = self._read(start)
        quote = re.compile("['\"`]").search(clause, start, offset)
        if start and quote is not None and not self._has_token_there():  # it began within a text or a name
            self.tokens = self._read(quote.end())
            if not self._has_token_there():
                self.tokens = self._read(offset)

    def _has_token_there(self) -> bool:
        return self.offset >= self.end or any(token.start == self.offset for token in self.tokens)

    def _read(self, start: int) -> list[Token]:
        tokens: list[Token] = []
        for match in token_pattern().finditer(self.clause, start, self.end):
            kind = match.lastgroup
            if kind is not None:
                is_field = kind == "word" and tokens and tokens[-1].text == "."
                tokens.append(Token("name" if is_field else kind, match[0], match.start()))
        return tokens

    def __getitem__(self, at: int) -> Token:
        return self.tokens[at] if 0 <= at < len(self.tokens) else NOTHING

    def is_end(self, at: int) -> bool:
        return at == len(self.tokens) and self.has_end

    def attribute(self, token: Token) -> Attribute | None:
        if not token.is_named:
            return None
        name = token.text[1:-1].replace("``", "`") if token.text[0] == "`" else token.text
        index = self.space.index(name)
        return None if index is None else self.space.attributes[index]

    def operand(self, at: int) -> int:
        """The end of the literal or name that begins here; `at` if there is none, or one that is not simple."""
        after = at + 1 if self[at].text == "-" and self[at + 1].is_number else at
        token = self[after]
        if token.kind == "literal" or token.word in ("NULL", "TRUE", "FALSE"):
            return after + 1
        return after + 1 if token.is_named and self[after + 1].text not in (".", "(") else at

    def text(self, start: int, end: int) -> str:
        return _cut(self.clause[self[start].start : self[end - 1].end])


def explained(error: ClauseError, clause: str, space: Space) -> ClauseError:
    """The refusal in words that say what to do, if it is known what is wrong; else as it was."""
    if error.construct == TOO_LARGE:
        return error
    around = _Around(clause, error.offset, space)
    refused = any(token.start == error.offset and token.word in REFUSED for token in around.tokens)
    looks = (_beginning, _refused_word) if refused else _LOOKS
    for place in range(len(around.tokens)):
        for look in looks:
            found = look(around, place)
            if found is not None:
                return at(clause, found.token.start, found.rule or error.rule, found.hint, error.construct)
    return error


def value_hint(word: str, attribute: Attribute) -> str:
    """How a value is written that stands without quotes where a literal belongs."""
    axis = attribute.axis
    if isinstance(axis, StringAxis | EnumAxis):
        meant = closest(word, axis.values) if isinstance(axis, EnumAxis) else None
        return f"a text stands in quotes: {quoted(meant or _cut(word))}"
    if isinstance(axis, BoolAxis):
        return "write TRUE or FALSE"
    if isinstance(axis, DateAxis):
        return "a date is written DATE'2020-02-29'"
    if isinstance(axis, TimestampAxis):
        return "a timestamp is written TIMESTAMP'2020-02-29 13:45:00'"
    if isinstance(axis, TimestampNtzAxis):
        return "a timestamp_ntz is written '2020-02-29 13:45:00'"
    if isinstance(axis, FloatingAxis) and word.lower() in ("nan", "inf", "infinity"):
        return f"write {quoted(word)}"
    return "a number is written in digits, such as 5"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


# --- What may be wrong at a token ------------------------------------------------------------------------------------


def _refused_word(around: _Around, place: int) -> Hint | None:
    """CASE, ILIKE and the like are names, too."""
    token = around[place]
    if token.start != around.offset or around.space.index(token.text) is None:
        return None
    return Hint(token, "", f"{ADVICE[REFUSED[token.word]]}; the attribute is written `{token.text}`, in backticks")


def _beginning(around: _Around, place: int) -> Hint | None:
    if place or not around.has_start:
        return None
    first, second = around[0], around[1]
    follows = second.kind in ("literal", "name", "digits") or second.text == "(" or second.is_named
    if first.word == "SELECT" or (first.word == "WHERE" and (follows or second.word == "NOT")):
        return Hint(first, "a clause is only what follows WHERE", f"leave out {first.word}")
    if first.word in ("AND", "OR"):
        return Hint(first, f"a clause does not begin with {first.word}", "")
    if second.text == ":" and first.kind in ("word", "name", "literal"):
        hint = "a text file has a clause a line, without ids: files in YAML, TOML or CSV have ids"
        return Hint(second, "", hint)
    return None


def _quotes(around: _Around, place: int) -> Hint | None:
    """`'it's'`: a quote within quotes."""
    text, word, rest = around[place], around[place + 1], around[place + 2]
    touch = text.end == word.start and word.end == rest.start
    if not (text.is_text and word.kind == "word" and word.word not in GRAMMAR and rest.is_text and touch):
        return None
    whole = text.text + word.text + rest.text.rstrip(text.text[0])
    if len(whole) > SHOWN or rest.text[0] != text.text[0]:
        return Hint(text, "a quote ends the text here", "a quote within quotes is written twice")
    inside = whole[1:].replace(text.text[0], text.text[0] * 2)
    written = f"{text.text[0]}{inside}{text.text[0]}"
    if len(rest.text) > 1 and not rest.text.endswith(text.text[0]):  # it went on to the end of the clause
        return Hint(text, f"the text ends after {text.text}", "a quote within quotes is written twice")
    return Hint(text, f"the text ends after {text.text}", f"a quote within quotes is written twice: {written}")


def _signs(around: _Around, place: int) -> Hint | None:
    """Operators and marks of other languages."""
    token, following = around[place], around[place + 1]
    meant = {"=>": ">=", "=<": "<=", "=!": "!=", "===": "=", ":=": "=", "=~": "", "!~": ""}.get(token.text)
    if meant is not None:
        return Hint(token, f"no operator {token.text!r}", f"did you mean {meant}?" if meant else PREFIX)
    if token.is_comparison and following.is_comparison:
        whole = token.text + following.text
        hint = f"write {whole}" if whole in COMPARISONS else ""
        return Hint(following, f"an operator too many: {following.text!r}", hint)
    if token.text == "[":
        name = following.text if following.kind == "word" and around[place + 2].text == "]" else "name"
        return Hint(token, "", f"names stand in backticks: `{_cut(name)}`")
    if token.text == "/" == following.text and token.end == following.start:
        return Hint(token, "unexpected '//'", "comments begin with --")
    if token.text in "$€£¥" and following.kind in ("literal", "digits"):
        return Hint(token, "", f"write the number alone: {_cut(following.text)}")
    return None


def _numbers(around: _Around, place: int) -> Hint | None:
    token, following, third = around[place], around[place + 1], around[place + 2]
    if token.kind == "digits":
        return _no_number(around, place)
    if not token.is_number:
        return None
    date = DATE.match(around.clause, token.start, around.end)
    if date is not None:
        text = date[0].replace("/", "-").replace("T", " ")
        if len(text) > 10:
            return Hint(token, f"{date[0]} without quotes is no timestamp", f"write TIMESTAMP'{text}'")
        return Hint(token, f"{date[0]} without quotes is arithmetic", f"a date is written DATE'{text}'")
    touch = token.end == following.start and following.end == third.start
    follows = around[place - 1].is_comparison or around[place - 1].word in ("BETWEEN", "AND")
    if follows and following.text == "," and third.is_number and touch:
        digits, at_end = token.text, place + 1
        while around[at_end].text == "," and re.fullmatch("[0-9]{3}", around[at_end + 1].text):
            digits, at_end = digits + around[at_end + 1].text, at_end + 2
        if at_end == place + 1:
            return Hint(following, "unexpected ','", f"the decimal point is a dot: {token.text}.{third.text}")
        return Hint(following, "unexpected ','", f"numbers have no separators: {_cut(digits)}")
    if following.text == "." and touch and third.kind in ("literal", "digits") and third.text[0].isdigit():
        return Hint(token, f"{token.text}.{third.text} is not a number", "numbers have no separators")
    if following.is_number and re.fullmatch("[0-9]{3}", following.text):
        whole = _cut(token.text) + following.text
        return Hint(following, "two numbers in a row", f"numbers have no separators: {whole}")
    return None


def _no_number(around: _Around, place: int) -> Hint:
    """Digits that are followed by letters."""
    token = around[place]
    rule, plain = f"{_cut(token.text)!r} is not a number", token.text.replace("_", "")
    if re.fullmatch("0[xX][0-9a-fA-F]{1,16}", plain):
        return Hint(token, rule, f"write it in decimal: {int(plain, 16)}")
    if re.fullmatch(r"[0-9.]+", plain):
        return Hint(token, rule, f"numbers have no separators: {_cut(plain)}")
    if not around[place - 1].is_comparison and (around[place + 1].is_comparison or around[place + 1].word in TESTS):
        return Hint(token, rule, f"a name that begins with a digit stands in backticks: `{_cut(token.text)}`")
    return Hint(token, rule, "a number is written in digits, such as 5; a text stands in quotes")


def _between(around: _Around, place: int) -> Hint | None:
    """BETWEEN without two values joined by AND."""
    if around[place].word != "BETWEEN":
        return None
    low = place + 1
    if around[low].text == "(" and around[around.operand(low + 1)].text == ",":
        low += 1
    end = around.operand(low)
    rule, write, high = "BETWEEN takes two values", "write BETWEEN low AND high", end + 1
    if end == low:
        return Hint(around[place], rule, write) if around.is_end(low) else None
    if around[end].word == "AND" and not around.is_end(high):
        return None
    if around[end] is NOTHING and not around.is_end(end):
        return None  # beyond what is looked at
    first, last = around.text(low, end), around.operand(high)
    if last > high and around[end].word in (",", "TO", "-", "OR"):
        return Hint(around[end], rule, f"write BETWEEN {first} AND {around.text(high, last)}")
    return Hint(around[place], rule, write)


def _missing(around: _Around, place: int) -> Hint | None:
    """An operator or a word that nothing follows."""
    token, following = around[place], around[place + 1]
    ends = around.is_end(place + 1) or following.text == ")" or following.word in ("AND", "OR")
    if token.word in ("AND", "OR", "NOT") and ends:
        return Hint(token, f"a condition is missing after {token.word}", "")
    if token.text == "(" and following.word in ("AND", "OR"):
        return Hint(following, f"a condition is missing before {following.word}", "")
    if token.is_comparison and ends and not around.is_end(place + 1):
        return Hint(token, f"a value is missing after {token.text}", "")
    return None


def _chain(around: _Around, place: int) -> Hint | None:
    """`5 < price < 10`."""
    name = around.operand(place)
    middle = name + 1
    if name == place or not around[name].is_comparison:
        return None
    second = around.operand(middle)
    if second == middle or not around[second].is_comparison:
        return None
    last, one, other = around.operand(second + 1), around[name].text, around[second].text
    rule, hint = "a comparison has two sides", "join two comparisons by AND"
    if last > second + 1 and one in FLIPPED and around[middle].is_named and not around[place].is_named:
        left, column, right = around.text(place, name), around.text(middle, second), around.text(second + 1, last)
        hint = f"write {column} {FLIPPED[one]} {left} AND {column} {other} {right}"
    return Hint(around[second], rule, hint)


def _in_list(around: _Around, place: int) -> Hint | None:
    if around[place].word != "IN":
        return None
    opening, member = around[place + 1], around[place + 2]
    if opening is NOTHING:
        return Hint(around[place], "a list is missing after IN", "IN (1, 2)") if around.is_end(place + 1) else None
    if opening.text != "(":
        end = around.operand(place + 1)
        plain = "a list stands in parentheses: IN (1, 2)"
        hint = f"write IN ({around.text(place + 1, end)})" if opening.kind == "literal" else plain
        return Hint(opening, "IN takes a list", hint)
    if member.text == ")":
        return Hint(opening, "the IN list is empty", "FALSE is the clause that matches nothing")
    column = around.attribute(around[place - 2 if around[place - 1].word == "NOT" else place - 1])
    for at_member in range(place + 2, len(around.tokens)):
        member, before, after = around[at_member], around[at_member - 1], around[at_member + 1]
        if member.text in (")", "("):
            return None
        if column is None or before.text not in ("(", ",") or after.text not in (",", ")"):
            continue
        if member.is_named and around.attribute(member) is None:
            return Hint(member, "an IN list holds literals only", value_hint(member.text.strip("`"), column))
    return None


def _tested(around: _Around, place: int) -> Hint | None:
    """IS before what is no NULL, TRUE or FALSE."""
    if around[place].word != "IS":
        return None
    negated = around[place + 1].word == "NOT"
    operand = place + 1 + negated
    token, write = around[operand], "<>" if negated else "="
    if token.kind == "literal" or (token.text == "-" and around[operand + 1].is_number):
        end = around.operand(operand)
        return Hint(token, "IS takes NULL, TRUE or FALSE", f"write {write} {around.text(operand, end)}")
    if token.word in ("IN", "LIKE", "BETWEEN") or token.is_comparison:
        return Hint(token, "IS takes NULL, TRUE or FALSE", "leave out IS")
    if not token.is_named or token.kind != "word":
        return None
    if token.word in ABSENT:
        hint = "did you mean NULL?"
    elif token.word in OPERATORS:
        hint = OPERATORS[token.word]
    else:
        close = closest(token.text, ("NULL", "TRUE", "FALSE", "UNKNOWN", "DISTINCT"))
        hint = f"did you mean {close}?" if close else f"write {write} and a value"
    return Hint(token, f"no test IS {'NOT ' * negated}{_cut(token.text)}", hint)


def _no_operator(around: _Around, place: int) -> Hint | None:
    """A word, a value or nothing where an operator belongs."""
    token, following, third = around[place], around[place + 1], around[place + 2]
    if token.word == "NOT" and following.is_comparison:
        hint = f"write {OPPOSITE[following.text]}" if following.text in OPPOSITE else "write NOT before the attribute"
        return Hint(token, "NOT stands before a condition", hint)
    if token.word == "LIKE" and following.is_named and around.attribute(following) is None and third.text != "(":
        return Hint(following, "the pattern of LIKE is a text", f"it stands in quotes: '{_cut(following.text)}%'")
    if token.kind == "literal" or token.text == ")":
        return _no_connector(around, place)
    if not token.is_named or around[place - 1].kind == "literal":
        return None
    if following.kind == "literal":
        if around[place - 1].is_named:
            return None  # it is the word before that is wrong
        return Hint(following, "an operator is missing", f"write {_cut(token.text)} = {_cut(following.text)}")
    if following.word == "NOT" and third.kind == "literal":
        return Hint(following, "an operator is missing", f"write {_cut(token.text)} <> {_cut(third.text)}")
    if following.kind == "word" and following.is_named:
        meant = OPERATORS.get(following.word) or _close(following, "BETWEEN", "LIKE", "IN", "IS", "AND", "OR", "NOT")
        return Hint(
            following,
            f"no operator {_cut(following.text)!r}",
            meant or "the operators are =, <>, <, <=, >, >=, BETWEEN, IN, LIKE and IS",
        )
    return None


def _no_connector(around: _Around, place: int) -> Hint | None:
    """Two conditions without AND or OR between them."""
    following, third, fourth = around[place + 1], around[place + 2], around[place + 3]
    begins = third.word in ("AND", "OR") or (third.is_named and (fourth.is_comparison or fourth.word in TESTS))
    if following.text == "," and begins and around[place - 1].is_comparison:
        return Hint(following, "unexpected ','", "conditions are joined by AND or OR")
    if not following.is_named:
        return None
    if close := _close(following, "AND", "OR"):
        return Hint(following, "", close)
    if third.is_comparison or third.word in TESTS:
        return Hint(following, "", "AND or OR is missing before it")
    return None


def _close(token: Token, *words: str) -> str:
    close = closest(token.text, words) if token.kind == "word" else None
    return f"did you mean {close}?" if close else ""


def _quoted_name(around: _Around, place: int) -> Hint | None:
    """`'price' < 5`: an attribute's name in the quotes of a text."""
    token, following = around[place], around[place + 1]
    if not token.is_text or not 0 <= around.offset - token.start <= len(token.text) + 20:
        return None
    if not (following.is_comparison or following.word in TESTS) or around[place - 1].is_comparison:
        return None
    name = token.text[1:-1]
    if around.space.index(name) is None:
        return None
    plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and name.upper() not in RESERVED
    write = f"write {name}, or `{name}` in backticks" if plain else f"write `{name}` in backticks"
    return Hint(token, f"{token.text} in quotes is a text", write)


_Look = Callable[[_Around, int], Hint | None]
_LOOKS: tuple[_Look, ...] = (
    _beginning, _quotes, _signs, _numbers, _between, _missing, _chain, _in_list, _tested, _no_operator, _quoted_name,
)  # fmt: skip
