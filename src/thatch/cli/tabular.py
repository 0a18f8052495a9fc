"""Rows as columns of text, for a terminal."""

from __future__ import annotations


def table(rows: list[list[str]]) -> str:
    """The first row underlined.

    >>> print(table([["id", "matches"], ["ann", "3"]]))
    id   matches
    ---  -------
    ann  3
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def counted(count: int, what: str) -> str:
    """
    >>> counted(1, "match"), counted(2_000, "match")
    ('1 match', '2,000 matches')
    """
    plural = what + ("es" if what.endswith("ch") else "s")
    return f"{count:,} {what if count == 1 else plural}"


def megabytes(size: int) -> str:
    """
    >>> megabytes(1_500_000), megabytes(10)
    ('1.5 MB', '0.0 MB')
    """
    return f"{size / 1e6:,.1f} MB"


def marked(clause: str, line: int, column: int) -> str:
    """A line of a clause with a mark below the column, as compilers show a mistake.

    >>> print(marked("price < 5 AND prise < 3", 1, 15))
        price < 5 AND prise < 3
                      ^
    """
    text = clause.split("\n")[line - 1]
    start = max(column - 60, 0)
    mark = " " * (column - 1 - start) + "^"
    return f"    {text[start : start + 100].replace(chr(9), ' ').rstrip()}\n    {mark}"
