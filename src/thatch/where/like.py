"""LIKE patterns: their parts, the strings that start with a prefix, and which values of an enum match.

`%` matches any characters, `_` one. A pattern is cut at its `%`: the first piece stands at the start, the last at the
end, and each of the others at the first place behind the one before it, for if a match exists, one exists with all
pieces as far to the left as they go. So nothing is tried twice, and a match costs at most the product of the lengths of
a value and of a piece. As a regular expression, twenty `%` and one letter that is not there would take years.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

ANY, ONE = "%", "_"
WILDCARDS = (ANY, ONE)


def parts_of(pattern: str, escape: str) -> list[str]:
    """The parts of a pattern: `%`, `_`, and ordinary characters, those that were escaped with a backslash before
    them."""
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in (*WILDCARDS, escape):
                raise ValueError(f"has the escape character {escape!r} before {following or 'its end'!r}")
            parts.append("\\" + following)
        elif character in WILDCARDS:
            parts.append(character)
        else:
            parts.append("\\" + character)
    return parts


class Pattern:
    """Which texts match the parts of a pattern.

    >>> [Pattern(parts_of("a%b_", "!")).matches(text) for text in ("abc", "axxbc", "ab", "xabc")]
    [True, True, False, False]
    """

    def __init__(self, parts: Sequence[str]) -> None:
        pieces = [list(group) for is_any, group in groupby(parts, ANY.__eq__) if not is_any]
        self._has_any = ANY in parts
        self._first = pieces.pop(0) if pieces and parts[0] != ANY else []
        self._last = pieces.pop() if pieces and parts[-1] != ANY else []
        self._between = pieces
        self._least = sum(map(len, (self._first, *pieces, self._last)))  # characters of a text that matches

    def matches(self, text: str) -> bool:
        if len(text) < self._least or (not self._has_any and len(text) > self._least):
            return False
        start, end = len(self._first), len(text) - len(self._last)
        if not (_is_at(self._first, text, 0) and _is_at(self._last, text, end)):
            return False
        for piece in self._between:
            while start + len(piece) <= end and not _is_at(piece, text, start):
                start += 1
            start += len(piece)
        return start <= end


def _is_at(piece: Sequence[str], text: str, at: int) -> bool:
    return all(part in (ONE, "\\" + text[at + offset]) for offset, part in enumerate(piece))


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
