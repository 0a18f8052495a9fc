"""A page of tables and plots that needs nothing but itself: HTML with its style in it, plots as inline SVG.

Every text is escaped, there is no script, and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } p.about { color: #555; }
table { border-collapse: collapse; margin: .6rem 0; } th { text-align: left; border-bottom: 2px solid #888; }
th, td { padding: .2rem .8rem .2rem 0; vertical-align: top; } td { border-bottom: 1px solid #ddd; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } code { font-size: .9em; }
svg { max-width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #333; }
@media (prefers-color-scheme: dark) {
  body { background: #181a1b; color: #ddd; } p.about { color: #aaa; } svg text { fill: #ccc; }
  td { border-color: #444; }
}
"""
BLUE, ROW, LABEL, WIDTH = "#3b76af", 22, 190, 720


def page(title: str, *parts: str) -> str:
    """All of it.

    >>> page("A & B", heading("First")).splitlines()[-2:]
    ['<h2>First</h2>', '</body></html>']
    """
    head = f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join(parts)
    return f"{head}{view}<style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f'<p class="about">{escape(text)}</p>'


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], more: int = 0) -> str:
    """Numbers to the right; `more` are not shown."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    lines = ["".join(map(_cell, row)) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    rest = paragraph(f"and {more:,} more") if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>{rest}"


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"<td>{escape('' if value is None else str(value))}</td>"
    return f'<td class="number">{_number(value)}</td>'


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def bars(labels: Sequence[str], values: Sequence[float], unit: str = "") -> str:
    """One bar a label, from the left."""
    most = max([*values, 0.0]) or 1.0
    room = WIDTH - LABEL - 90
    lines = []
    for at, (label, value) in enumerate(zip(labels, values, strict=True)):
        y, width = at * ROW, max(0.0, value) / most * room
        shown = label if len(label) <= 28 else label[:27] + "…"
        lines.append(
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(shown)}<title>{escape(label)}</title></text>'
            f'<rect x="{LABEL}" y="{y + 3}" width="{width:.1f}" height="{ROW - 6}" fill="{BLUE}"/>'
            f'<text x="{LABEL + width + 6:.1f}" y="{y + 15}">{_number(value)}{escape(unit)}</text>'
        )
    return _svg(WIDTH, max(1, len(labels)) * ROW, lines)


def histogram(counts: Sequence[int], edges: Sequence[str]) -> str:
    """Columns; edges are the labels between them, one more than counts."""
    height, room, most = 160, WIDTH - 60, max([*counts, 1])
    step, lines = room / max(1, len(counts)), []
    for at, count in enumerate(counts):
        tall, x = count / most * height, 30 + at * step
        lines.append(
            f'<rect x="{x + 1:.1f}" y="{20 + height - tall:.1f}" width="{max(1.0, step - 2):.1f}" height="{tall:.1f}" '
            f'fill="{BLUE}"><title>{escape(edges[at])} to {escape(edges[at + 1])}: {count:,}</title></rect>'
            f'<text x="{x + step / 2:.1f}" y="{14 + height - tall:.1f}" text-anchor="middle">{count:,}</text>'
        )
    every = max(1, -(-len(edges) // 8))
    for at, edge in enumerate(edges):
        if at % every == 0 or at == len(edges) - 1:
            lines.append(
                f'<text x="{30 + at * step:.1f}" y="{height + 36}" text-anchor="middle">{escape(edge[:14])}</text>'
            )
    return _svg(WIDTH, height + 44, lines)


def heat(counts: Sequence[Sequence[float]], across: str, upward: str, titles: Sequence[Sequence[str]]) -> str:
    """A square for each pair of cells, darker for more; counts[i][j] is the i-th across and the j-th upward."""
    columns, rows = len(counts), len(counts[0]) if counts else 0
    most = max((value for column in counts for value in column), default=0.0) or 1.0
    side = min(28.0, 420 / max(columns, rows, 1))
    lines = []
    for i, column in enumerate(counts):
        for j, value in enumerate(column):
            x, y = 30 + i * side, 6 + (rows - 1 - j) * side
            share = (value / most) ** 0.5 if value > 0 else 0.0
            title = f"<title>{escape(titles[i][j])}: {_number(value)}</title>"
            lines.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{side - 1:.1f}" height="{side - 1:.1f}" fill="{BLUE}" '
                f'fill-opacity="{0.04 + 0.96 * share:.3f}">{title}</rect>'
            )
    low = 6 + rows * side
    lines.append(
        f'<text x="{30 + columns * side / 2:.1f}" y="{low + 16:.1f}" text-anchor="middle">{escape(across)}</text>'
    )
    middle = 6 + rows * side / 2
    lines.append(
        f'<text x="14" y="{middle:.1f}" text-anchor="middle" transform="rotate(-90 14 {middle:.1f})">'
        f"{escape(upward)}</text>"
    )
    return _svg(int(columns * side + 60), int(low + 24), lines)


def _svg(width: int, height: int, lines: Sequence[str]) -> str:
    body = "\n".join(lines)
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n{body}\n</svg>'
