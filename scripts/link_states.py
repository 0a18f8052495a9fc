"""The states of a link, drawn from the table that brokers move by (broker/link_states.py).

python scripts/link_states.py           draw docs/link-states.svg, and write the table into docs/brokers.md
python scripts/link_states.py --check   exit with 1 if one of them is out of date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path

from thatch.broker.link_states import STEPS, LinkInput, LinkState, LinkStep

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "link-states.svg"
PAGE = ROOT / "docs" / "brokers.md"
BEGIN, END = "<!-- link states -->\n", "<!-- end of link states -->\n"
Steps = Mapping[LinkState, Mapping[LinkInput, LinkStep]]

WIDTH, HEIGHT, GAP, MARGIN, ARC = 104, 44, 96, 14, 40


def table(steps: Steps) -> str:
    """Markdown: inputs by states; a state that follows only where it is another one."""
    states = list(steps)
    lines = [
        f"| input | {' | '.join(each.value for each in states)} |",
        f"|---|{'---|' * len(states)}",
    ]
    for input in LinkInput:
        cells = [_cell(state, steps[state][input]) for state in states]
        lines.append(f"| {_shown(input)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _shown(input: LinkInput) -> str:
    """Messages as code."""
    return re.sub(r"\b[A-Z]\w+", r"`\g<0>`", input.value)


def _cell(state: LinkState, step: LinkStep) -> str:
    return step.action.value + ("" if step.next is state else f" → **{step.next.value}**")


def picture(steps: Steps) -> str:
    """An SVG: an arrow for every change of state, with the inputs that cause it."""
    states = list(steps)
    arrows: dict[tuple[int, int], list[str]] = {}
    for state, row in steps.items():
        for input, step in row.items():
            if step.next is not state:
                arrows.setdefault((states.index(state), states.index(step.next)), []).append(input.value)
    above = max((one - two for one, two in arrows if 0 < two < one), default=0) * ARC + 20
    below = max((one - two for one, two in arrows if two == 0), default=0) * ARC + 20
    width, top = 2 * MARGIN + len(states) * WIDTH + (len(states) - 1) * GAP, MARGIN + above
    height = top + HEIGHT + below + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif">',
        "<title>The states of a link, and the inputs that change them</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#52606d"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for (one, two), inputs in sorted(arrows.items()):
        lines += _arrow(one, two, ", ".join(inputs), top)
    for at, state in enumerate(states):
        x = _left(at)
        lines += [
            f'<rect x="{x}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef3f8" stroke="#3b76af"/>',
            f'<text x="{x + WIDTH / 2:g}" y="{top + HEIGHT / 2 + 5:g}" font-size="14" font-weight="600" fill="#1f2933" '
            f'text-anchor="middle">{state.value}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _left(at: int) -> int:
    return MARGIN + at * (WIDTH + GAP)


def _arrow(one: int, two: int, label: str, top: int) -> list[str]:
    """Forward a straight line; back to the first state an arc below the boxes, back to another one an arc above."""
    if one < two:
        y = top + HEIGHT / 2
        path = f"M{_left(one) + WIDTH} {y:g}H{_left(two) - 2}"
        x, y_text = (_left(one) + WIDTH + _left(two)) / 2, y - 6
    else:
        side = 1 if two == 0 else -1
        edge = top + HEIGHT if side > 0 else top
        x1, x2 = _left(one) + WIDTH / 2 + side * 12 * (one - 2), _left(two) + WIDTH / 2 + 16 * (2 - (one - two))
        bend = edge + side * ARC * (one - two)
        path, x = f"M{x1:g} {edge}C{x1:g} {bend} {x2:g} {bend} {x2:g} {edge + 2 * side}", (x1 + x2) / 2
        y_text = edge + side * ARC * (one - two) * 0.75 + (12 if side > 0 else -4)
    return [
        f'<path d="{path}" fill="none" stroke="#52606d" stroke-width="1.3" marker-end="url(#head)"/>',
        f'<text x="{x:g}" y="{y_text:g}" font-size="11" fill="#3e4c59" text-anchor="middle">{escape(label)}</text>',
    ]


def page(text: str, steps: Steps) -> str:
    """The page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(steps)}{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    wanted = {PICTURE: picture(STEPS), PAGE: page(PAGE.read_text(), STEPS)}
    if parser.parse_args().check:
        stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: python scripts/link_states.py", file=sys.stderr)
        return 1 if stale else 0
    for path, text in wanted.items():
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
