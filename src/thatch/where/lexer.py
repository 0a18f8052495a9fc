"""Text of a WHERE clause to its shape and its literals, in one linear scan.

The shape is the clause with every literal replaced by its kind, and every IN list of literals by one mark: clauses
that differ only in literals share a shape and are parsed once (compile.py). Literals are read here, by Spark's
lexical rules, so nothing depends on how a parser would read them.

Before a parser sees a new shape, `sanitised` bounds its tokens and depth, refuses what Spark's grammar has and we do
not by name, and writes it again: each literal as the string of its number, each attribute name in backticks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from thatch.errors import MALFORMED_CLAUSE, TOO_LARGE, ClauseError, shown
from thatch.space import times
from thatch.where.literals import Literal, Members, number_literal, string_literal

CLAUSE_SIZE_MAX = 4 * 2**20  # characters
LITERAL_SIZE_MAX = 2**16
NAME_SIZE_MAX = 1_024
STRETCH_MAX = 2**16  # text without a quote or a digit: no clause within the other bounds has so much of it
LITERALS_MAX = 4_096  # outside IN lists
LIST_SIZE_MAX = 50_000
PIECES_MAX = 4 * LITERALS_MAX  # literals, names in backticks and comments, and what is between them
TOKENS_MAX = 12_288  # an IN list of literals is one token
DEPTH_MAX = 32  # parentheses and NOTs: the parser recurses about 20 Python frames for each

# Possessive quantifiers (++, *+) never give back what they took, and an unclosed quote matches to the end of the
# text: both keep the scan linear on hostile input. Keywords and digits are spelled out in ASCII: Python's own ignoring
# of case would read a dotless i as I, and its \d the digits of every script.


def _keyword(*words: str) -> str:
    return "(?:" + "|".join("".join(f"[{c}{c.lower()}]" if c.isalpha() else c for c in word) for word in words) + ")"


_STRING = r"""'(?:[^'\\]++|\\.|'')*+(?:'|\\?\Z)|"(?:[^"\\]++|\\.|"")*+(?:"|\\?\Z)"""
_RAW = r"""(?<!\w)[rR](?:'[^']*+(?:'|\Z)|"[^"]*+(?:"|\Z))"""
_COMMENT = r"--[^\n]*+|/\*(?:[^*/]++|\*(?!/)|/(?!\*))*+\*/"
_BLANK = rf"(?:\s++|{_COMMENT})*+"
_TYPED = rf"(?<!\w){_keyword('DATE', 'TIMESTAMP', 'TIMESTAMP_LTZ')}{_BLANK}(?:{_STRING}|{_RAW})"
_SUFFIX = _keyword("BD", "D", "F", "L", "S", "Y")
_NUMBER = rf"(?<![\w.])(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+{_SUFFIX}?+(?!\w)"
_ITEM = rf"(?:(?:-{_BLANK})?{_NUMBER}|{_TYPED}|{_RAW}|{_STRING}|(?<!\w){_keyword('NULL', 'TRUE', 'FALSE')}(?!\w))"
_LIST = rf"(?<!\w){_keyword('IN')}{_BLANK}\({_BLANK}{_ITEM}(?:{_BLANK},{_BLANK}{_ITEM})*+{_BLANK}\)"
_QUOTED_NAME = r"`(?:[^`]++|``)*+(?:`|\Z)"
_WORDS = rf"(?<!\w)(?:{_LIST}|{_TYPED}|{_RAW})"
# Most characters start nothing: one look at them is all they get.
_LITERAL = re.compile(rf"(?=['\"`0-9.iIdDtTrR/-])(?:{_WORDS}|{_STRING}|{_NUMBER}|{_QUOTED_NAME}|{_COMMENT})", re.DOTALL)
_LIST_HEAD = re.compile(rf"{_keyword('IN')}{_BLANK}\(", re.DOTALL)
_SIGNED_NUMBER = re.compile(rf"-{_BLANK}({_NUMBER})", re.DOTALL)
_PLAIN_STRING = re.compile(r"'([^'\\]*+)'")
_PLAIN_STRINGS = re.compile(r"\s*+'[^'\\]{0,999}+'(?:\s*+,\s*+'[^'\\]{0,999}+')*+\s*+")
_PLAIN_INTS = re.compile(r"\s*+-?[0-9]{1,9}+(?:\s*+,\s*+-?[0-9]{1,9}+)*+\s*+")
_TYPED_HEAD = re.compile(rf"({_keyword('DATE')}|{_keyword('TIMESTAMP')}\w*){_BLANK}(.*)", re.DOTALL)

# From the beginning of each stretch only: from every character of it, the search would be quadratic.
_STRETCH = re.compile(f"(?<![^'\"`0-9])[^'\"`0-9]{{{STRETCH_MAX}}}")

# Constructs that errors are counted by.
ARITHMETIC, BAD_LITERAL = "arithmetic", "literal that does not fit"

MARK = "\0"  # in a shape, followed by the kind of the literal that stood there


class ScannedClause(NamedTuple):
    shape: str
    literals: list[Literal | Members]  # an IN list of literals is one entry


def scan(text: str, zone: ZoneInfo) -> ScannedClause:
    """The shape and the literals of a clause.

    >>> scan("price < 20 AND symbol IN ('A', 'B')", ZoneInfo("UTC")).shape
    'price < \\x00i AND symbol \\x00l'
    """
    if len(text) > CLAUSE_SIZE_MAX:
        rule = f"the clause has {len(text):,} characters, at most {CLAUSE_SIZE_MAX:,} are allowed"
        raise ClauseError(rule, construct=TOO_LARGE)
    if len(text) > STRETCH_MAX and _STRETCH.search(text):
        rule = f"the clause has {STRETCH_MAX:,} characters in a row without a literal"
        raise ClauseError(rule, hint="split it", construct=TOO_LARGE)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise at(text, error.start, "the clause is not valid Unicode: it holds half a surrogate pair") from None
    pieces: list[str] = []
    literals: list[Literal | Members] = []
    end = 0
    for match in _LITERAL.finditer(text):
        start = match.start()
        token = match[0]
        pieces.append(text[end:start])
        end = match.end()
        first = token[0]
        try:
            if first == "`":
                pieces.append(token)
            elif first == "/" or token[:2] == "--":
                pieces.append(" ")
            elif first in "iI":
                literals.append(_members(token, zone))
                pieces.append(MARK + "l")
            else:
                literal = _literal(token, zone)
                literals.append(literal)
                pieces.append(MARK + literal.kind)
        except ValueError as error:
            if isinstance(error, ClauseError):
                raise
            raise at(text, start, f"{shown(token)} {error}", construct=BAD_LITERAL) from None
        if len(pieces) > PIECES_MAX:
            rule = f"the clause has more than {PIECES_MAX // 2:,} names in backticks and comments"
            raise at(text, start, rule, construct=TOO_LARGE)
        if len(literals) > LITERALS_MAX:
            rule = f"the clause has more than {LITERALS_MAX:,} literals"
            raise at(text, start, rule, "write long alternatives as an IN list", TOO_LARGE)
    pieces.append(text[end:])
    shape = "".join(pieces)
    if "/*" in shape:  # one that ends is gone
        raise at(text, text.rfind("/*"), "the comment has no */")
    if shape.count(MARK) != len(literals):
        raise at(text, text.find(MARK), "the clause holds a NUL character outside a string")
    return ScannedClause(shape, literals)


@cache  # compiled when it is needed, as `token_pattern`: each takes a process milliseconds
def _items() -> re.Pattern[str]:
    """The members of an IN list."""
    return re.compile(f"{_COMMENT}|({_ITEM})", re.DOTALL)


def _members(token: str, zone: ZoneInfo) -> Members:
    head = _LIST_HEAD.match(token)
    assert head is not None
    body = token[head.end() : -1]
    commas = body.count(",")
    if commas >= LIST_SIZE_MAX:
        size = (
            commas + 1
            if "'" not in body and '"' not in body
            else sum(match[1] is not None for match in _items().finditer(body))
        )
        if size > LIST_SIZE_MAX:
            raise ValueError(f"is an IN list of {size:,} values, at most {LIST_SIZE_MAX:,} are allowed")
    if _PLAIN_STRINGS.fullmatch(body):
        return Members("s", _PLAIN_STRING.findall(body))
    if _PLAIN_INTS.fullmatch(body):
        return Members("i", [int(item) for item in body.split(",")])
    return Members("", [_literal(item, zone) for item in _items().findall(body) if item])


def _literal(token: str, zone: ZoneInfo) -> Literal:
    """The literal of one token; ValueError with the broken rule, to be read after the token."""
    if len(token) > LITERAL_SIZE_MAX:
        raise ValueError(f"is a literal of {len(token):,} characters, at most {LITERAL_SIZE_MAX:,} are allowed")
    first = token[0]
    if first in "'\"":
        return Literal("s", string_literal(token))
    if first in "0123456789" or first == ".":
        return number_literal(token)
    if first == "-":
        signed = _SIGNED_NUMBER.fullmatch(token)
        assert signed is not None
        return number_literal("-" + signed[1])
    if first in "rR":
        return Literal("s", _raw(token))
    if first in "dDtT" and len(token) > 5:
        head = _TYPED_HEAD.fullmatch(token)
        if head is not None:
            text = _raw(head[2]) if head[2][0] in "rR" else string_literal(head[2])
            if head[1].upper() == "DATE":
                return Literal("a", times.days_of_text(text))
            return Literal("t", times.micros_of_text(text, zone))
    word = token.upper()
    return Literal("n", None) if word == "NULL" else Literal("b", word == "TRUE")


def _raw(token: str) -> str:
    if len(token) < 3 or token[-1] != token[1]:
        raise ValueError("has no closing quote")
    return token[2:-1]


def at(text: str, offset: int, rule: str, hint: str = "", construct: str = MALFORMED_CLAUSE) -> ClauseError:
    """An error at a character of the clause."""
    line = text.count("\n", 0, offset) + 1
    error = ClauseError(rule, line, offset - (text.rfind("\n", 0, offset) + 1) + 1, hint, construct)
    error.offset = offset
    return error


def literal_offset(text: str, slot: int) -> int:
    """Where the literal with this number stands; scans again, so it is for errors only."""
    found = (m.start() for m in _LITERAL.finditer(text) if m[0][0] not in "`/" and m[0][:2] != "--")
    return next((start for number, start in enumerate(found) if number == slot), 0)


_TOKEN = re.compile(
    rf"\s++|(?P<literal>{MARK}[a-z])|(?P<word>[^\W\d]\w*+)|(?P<name>{_QUOTED_NAME})"
    r"|(?P<operator><=>|<=|>=|<>|!=|!<|!>|==|[=<>!(),-])|(?P<other>.)",
    re.DOTALL,
)
COMPARISONS = frozenset(("<=>", "<=", ">=", "<>", "!=", "!<", "!>", "==", "=", "<", ">"))
_CALL = re.compile(r"\s*\(")
_SIGNED = re.compile(rf"\s*{MARK}[idf]")
GRAMMAR = frozenset("AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE UNKNOWN DISTINCT FROM".split())
REFUSED = {
    "CASE": "CASE",
    "SELECT": "a sub-query",
    "EXISTS": "a sub-query",
    "CAST": "CAST",
    "TRY_CAST": "CAST",
    "INTERVAL": "an interval",
    "RLIKE": "RLIKE",
    "REGEXP": "REGEXP",
    "ILIKE": "ILIKE",
    "COLLATE": "COLLATE",
    "DIV": "arithmetic",
    "ANY": "LIKE ANY",
    "ALL": "LIKE ALL",
    "SOME": "LIKE SOME",
    "TIMESTAMP_NTZ": "a timestamp without time zone",
}
_PREFIX = "a constant prefix is supported: LIKE 'abc%'"
ADVICE = {  # what to write instead
    "CASE": "write the conditions out with AND and OR",
    "a sub-query": "write the values: IN (1, 2)",
    "CAST": "write the literal as the attribute's type has it",
    "an interval": "write the date or the timestamp that is meant",
    "RLIKE": _PREFIX,
    "REGEXP": _PREFIX,
    "ILIKE": _PREFIX,
    "LIKE ANY": f"join conditions by OR; {_PREFIX}",
    "LIKE ALL": f"join conditions by AND; {_PREFIX}",
    "LIKE SOME": f"join conditions by OR; {_PREFIX}",
    "COLLATE": "leave it out: strings are compared by their bytes",
    "arithmetic": "write the value",
    "a timestamp without time zone": "compare a timestamp_ntz with a text: '2020-02-29 13:45:00'",
}
PART = "\x1f"  # between a column and its field, in a name for the parser
RESERVED = GRAMMAR | REFUSED.keys()  # attributes of these names are written in backticks
_QUOTE = "a typographic quote: write '"
_HINTS = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4\u201c\u201d\u201e\u2033\u00ab\u00bb", _QUOTE),
    "#": "comments begin with --",
    "[": "names stand in backticks",
    "{": "write the value",
    "$": "write the value",
    "@": "write the value",
    "~": "LIKE 'a%' for a prefix",
    "\u2264": "write <=",
    "\u2265": "write >=",
    "\u2260": "write <>",
    "\u2212": "write -",
    "+": "arithmetic is not supported: write the value",
    "*": "arithmetic is not supported: write the value",
    "/": "arithmetic is not supported: write the value; comments do not nest",
    "%": "arithmetic is not supported: write the value",
    ".": "a dot stands between a column and its field; a name with a dot is written in backticks",
    ";": "one clause, without a semicolon",
    "&": "write AND",
    "|": "write OR",
    ":": "parameters are not supported: write the value",
    "?": "parameters are not supported: write the value",
}


@cache
def token_pattern() -> re.Pattern[str]:
    """Of a clause itself, with what is no SQL: for hints (hints.py)."""
    return re.compile(
        rf"\s++|{_COMMENT}|(?P<literal>{_TYPED}|{_RAW}|{_STRING}|{_NUMBER})|(?P<name>{_QUOTED_NAME})"
        r"|(?P<word>[^\W\d]\w*+)|(?P<digits>[0-9][\w.]*+)"
        r"|(?P<operator><=>|=>|=<(?!>)|===|=!|=~|!~|:=|<=|>=|<>|!=|!<|!>|==|[=<>!(),-])|(?P<other>.)",
        re.DOTALL,
    )


class Sanitised(NamedTuple):
    """A shape, rewritten for the parser, with where each token came from."""

    text: str
    starts: list[int]  # of tokens, in the rewritten text
    offsets: list[int]  # of the same tokens, in the clause

    def offset(self, start: int) -> int:
        return self.offsets[max(bisect_right(self.starts, start) - 1, 0)] if self.offsets else 0


def sanitised(text: str, shape: str) -> Sanitised:
    """Check a shape against the bounds and rewrite it. `text` is the clause, for the places of errors."""
    out: list[str] = []
    starts: list[int] = []
    offsets: list[int] = []
    size = slot = nots = 0
    in_path = False  # after the dot of `column.field`
    open_nots: list[int] = []
    previous = ""
    _check_tokens(shape)
    offset_of = _offsets(text)
    for match in _TOKEN.finditer(shape):
        kind, token = match.lastgroup, match[0]
        if kind is None:
            continue
        offset = offset_of(match.start())
        if in_path:
            size += _add_field(out, kind, token, text, offset)
            in_path = False
            previous = token
            continue
        if kind == "literal":
            if previous[:1] == MARK and token != MARK + "l":
                raise at(text, offset, "two literals in a row", "write one literal, or an operator between them")
            written = f"IN ('{slot}')" if token == MARK + "l" else f"'{slot}'"
            slot += 1
        elif kind == "word":
            word = token.upper() if token.isascii() else token
            _check_word(word, text, offset)
            nots = nots + 1 if word == "NOT" else nots
            if word in ("AND", "OR"):
                nots = open_nots[-1] if open_nots else 0
            is_function = _CALL.match(shape, match.end()) is not None
            written = word if word in GRAMMAR else (token if is_function else f"`{token}`")
        elif kind == "name":
            _check_quoted_name(token, text, offset)
            written = token
        elif kind == "operator":
            written = {"!": "NOT", "!<": ">=", "!>": "<="}.get(token, token)
            if token == "!":
                _check_bang(previous, text, offset)
                nots += 1
            if token == "(":
                open_nots.append(nots)
            elif token == ")":
                if not open_nots:
                    raise at(text, offset, "`)` without `(`")
                nots = open_nots.pop()
            elif token == "-" and (_SIGNED.match(shape, match.end()) is None or previous[:1] in (MARK, ")", "`")):
                raise at(text, offset, "`-` is not the sign of a number", _HINTS["+"], ARITHMETIC)
        elif token == "." and out and out[-1][-1] == "`":
            in_path = True
            continue
        else:
            raise _unexpected(token, text, offset)
        if nots + len(open_nots) > DEPTH_MAX:
            raise at(text, offset, _TOO_DEEP, "remove parentheses", TOO_LARGE)
        starts.append(size)
        offsets.append(offset)
        out.append(written)
        size += len(written) + 1
        previous = token
    if in_path:
        raise at(text, len(text), "a field belongs after the dot")
    if open_nots:
        raise at(text, len(text), f"{len(open_nots)} `(` without `)`")
    if not out:
        raise ClauseError("the clause is empty", hint="write TRUE for everything")
    return Sanitised(" ".join(out), starts, offsets)


_TOO_DEEP = f"the clause is nested more than {DEPTH_MAX} deep"


def _unexpected(token: str, text: str, offset: int) -> ClauseError:
    construct = ARITHMETIC if token in "+*/%" else MALFORMED_CLAUSE
    return at(text, offset, f"unexpected {shown(token)}", _HINTS.get(token, ""), construct)


def _check_bang(previous: str, text: str, offset: int) -> None:
    """`!` stands before a condition, as in Spark: `x ! IN (1)` and `x IS ! NULL` are no SQL."""
    if previous not in ("", "(", "!") and previous.upper() not in ("AND", "OR", "NOT"):
        raise at(text, offset, "`!` stands before a condition", "write NOT")


def _check_tokens(shape: str) -> None:
    if len(shape) > TOKENS_MAX:
        tokens = (match for match in _TOKEN.finditer(shape) if match.lastgroup)
        if next(islice(tokens, TOKENS_MAX, None), None) is not None:
            rule = f"the clause has more than {TOKENS_MAX:,} tokens"
            raise ClauseError(rule, hint="split it", construct=TOO_LARGE)


def _check_word(word: str, text: str, offset: int) -> None:
    if word in REFUSED:
        what = REFUSED[word]
        raise at(text, offset, f"{what} is not supported", ADVICE[what], what)
    _check_size(word, text, offset)


def _check_quoted_name(token: str, text: str, offset: int) -> None:
    if len(token) < 3 or token[-1] != "`":
        raise at(text, offset, "a name in backticks has no closing backtick")
    if PART in token:
        raise at(text, offset, "a name holds a control character")
    _check_size(token, text, offset)


def _check_size(name: str, text: str, offset: int) -> None:
    if len(name) > NAME_SIZE_MAX:
        raise at(text, offset, f"a name of {len(name):,} characters, at most {NAME_SIZE_MAX:,} are allowed")


def _add_field(out: list[str], kind: str, token: str, text: str, offset: int) -> int:
    """Make the last name one with a field; by how much it has grown."""
    name = token if kind == "word" else token[1:-1]
    if kind not in ("word", "name") or not name or (kind == "name" and token[-1] != "`"):
        raise at(text, offset, "a field belongs after the dot", _HINTS["."])
    if len(out[-1]) + len(name) > NAME_SIZE_MAX:
        raise at(text, offset, f"a name of more than {NAME_SIZE_MAX:,} characters")
    out[-1] = f"{out[-1][:-1]}{PART}{name}`"
    return len(name) + 1


def _offsets(text: str) -> Callable[[int], int]:
    """A function from an offset in the shape to the offset in the clause, asked in ascending order."""
    matches = iter(_LITERAL.finditer(text))
    shift = 0  # clause offset minus shape offset, after the matches passed so far
    upcoming = next(matches, None)

    def offset(in_shape: int) -> int:
        nonlocal shift, upcoming
        while upcoming is not None and upcoming.start() - shift < in_shape:
            first = upcoming[0][0]
            width = len(upcoming[0]) if first == "`" else (1 if first == "/" or upcoming[0][:2] == "--" else 2)
            shift += len(upcoming[0]) - width
            upcoming = next(matches, None)
        return in_shape + shift

    return offset
