"""The layout of the source: its reading order, the imports that break it, and its picture.

The reading order stands in the docstrings of the packages and nowhere else: the root lists the packages, each package
lists its files, as indented lines of a name and what it is about. An import may point only to what was read before.

    python scripts/architecture.py           draw docs/architecture.svg from the real imports
    python scripts/architecture.py --check   print what breaks the order; exit with 1 if something does
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "thatch"
PICTURE = ROOT / "docs" / "architecture.svg"

# A method that is only the door to a later package imports it in its body, because users expect it there.
DOORS = {
    ("space.space", "where.compile"),  # Space.where
    ("space.space", "where.names"),  # Space.infer
    ("space.space", "region.region"),  # its return type
    ("region.region", "where.to_sql"),  # Region.to_sql
}
APART = ({"sim", "node", "spark", "local"},)  # packages that never import one another


@dataclass(frozen=True)
class Import:
    importer: str  # a module, without the leading "thatch."; the root is ""
    imported: str
    line: int


@cache
def parsed(text: str) -> ast.Module:
    """A file. The tests look at many trees that differ in one file, and at each file for many reasons."""
    return ast.parse(text)


@cache
def import_statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    """Those of a file."""
    return [node for node in ast.walk(parsed(text)) if isinstance(node, ast.Import | ast.ImportFrom)]


class Layout:
    """The modules of a source tree in reading order, and the imports between them."""

    def __init__(self, source: Path = SOURCE) -> None:
        self.source = source
        self.problems: list[str] = []
        self.about: dict[str, str] = {}  # each module and package, in reading order, with its line
        self.packages: list[str] = []  # of the top level
        self._read_package("", source)
        self.position = {name: position for position, name in enumerate(self.about)}
        self.imports = [each for path in sorted(source.rglob("*.py")) for each in self._imports_of(path)]

    def _read_package(self, name: str, folder: Path) -> None:
        """List a package's files and sub-packages as its docstring does."""
        docstring = ast.get_docstring(parsed((folder / "__init__.py").read_text()), clean=False) or ""
        listed = dict(re.findall(r"^    ([a-z_0-9]+)  +(\S.*)$", docstring, re.MULTILINE))
        found = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
        found |= {path.parent.name for path in folder.glob("*/__init__.py")}
        where = name or "the root"
        for missing in sorted(found - listed.keys()):
            self.problems.append(f"{where}: the docstring does not name {missing}")
        for gone in sorted(listed.keys() - found):
            self.problems.append(f"{where}: the docstring names {gone}, which is not there")
        for each, about in listed.items():
            full = f"{name}.{each}" if name else each
            self.about[full] = about
            if (folder / each / "__init__.py").exists():
                if not name:
                    self.packages.append(full)
                self._read_package(full, folder / each)

    def module_of(self, path: Path) -> str:
        parts = path.relative_to(self.source).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] in ("__init__", "__main__") else parts)

    def _imports_of(self, path: Path) -> Iterator[Import]:
        """Every import of our own modules, wherever it stands in a file."""
        importer = self.module_of(path)
        for node in import_statements(path.read_text()):
            if isinstance(node, ast.ImportFrom):
                if node.level:
                    self.problems.append(f"{importer}:{node.lineno}: a relative import")
                    continue
                names = [f"{node.module}.{each.name}" for each in node.names]
            else:
                names = [each.name for each in node.names]
            for name in names:
                imported = self._known(name.removeprefix("thatch.")) if name.startswith("thatch.") else None
                if imported is not None and imported != importer:
                    yield Import(importer, imported, node.lineno)

    def _known(self, name: str) -> str | None:
        """The module that holds a dotted name; None for what the root exports."""
        while name and name not in self.position:
            name = name.rpartition(".")[0]
        return name or None

    def violations(self) -> list[str]:
        """What breaks the reading order, each as a sentence."""
        found = list(self.problems)
        for each in self.imports:
            if not each.importer or (each.importer, each.imported) in DOORS:
                continue
            inside = each.imported.startswith(f"{each.importer}.")  # a package exports what is in it
            within = each.importer.startswith(f"{each.imported}.")
            if within:
                found.append(f"{each.importer}:{each.line}: imports from its own package {each.imported}")
            elif not inside and self._place(each.importer) < self._place(each.imported):
                found.append(f"{each.importer}:{each.line}: {each.imported} is read later")
            for apart in APART:
                ends = {each.importer.split(".")[0], each.imported.split(".")[0]}
                if len(ends) == 2 and ends <= apart:
                    found.append(f"{each.importer}:{each.line}: {' and '.join(sorted(ends))} stay apart")
        return found

    def _place(self, name: str) -> int:
        """A package's own code is read after what is in it."""
        inner = [position for other, position in self.position.items() if other.startswith(f"{name}.")]
        return max(inner, default=self.position.get(name, -1))

    def uses(self) -> dict[str, set[str]]:
        """Which packages each package imports, doors left out."""
        uses: dict[str, set[str]] = {name: set() for name in self.packages}
        for each in self.imports:
            one, other = each.importer.split(".")[0], each.imported.split(".")[0]
            if one in uses and other in uses and one != other and (each.importer, each.imported) not in DOORS:
                uses[one].add(other)
        return uses


# --- The picture ------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 208, 64, 26, 46, 18


def reduced(uses: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without what is implied: if a uses b and b uses c, then a need not be drawn to use c."""

    def reach(name: str) -> set[str]:
        return set().union(*({other} | reach(other) for other in uses[name]))

    return {
        name: {each for each in used if each not in set().union(*(reach(o) for o in used))}
        for name, used in uses.items()
    }


def floors(layout: Layout, edges: dict[str, set[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of packages by how much stands below them, the lowest first; and each edge as a chain of places, one a row.
    An edge that passes a row has a place of its own there, so that it runs between the boxes and not behind them."""
    level: dict[str, int] = {}
    for name in layout.packages:
        level[name] = max((level[other] + 1 for other in edges[name]), default=0)
    rows: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for name in layout.packages:
        rows[level[name]].append(name)
    chains: list[list[str]] = []
    for name in layout.packages:
        for other in sorted(edges[name], key=layout.packages.index):
            passed = [f"{name}>{other}>{floor}" for floor in range(level[name] - 1, level[other], -1)]
            for place in passed:
                rows[int(place.rpartition(">")[2])].append(place)
            chains.append([name, *passed, other])
    links = [pair for chain in chains for pair in pairwise(chain)]
    for sweep in range(12):  # each as near as can be to the middle of what it is drawn to, upward and downward in turn
        at = {place: number - len(row) / 2 for row in rows for number, place in enumerate(row)}
        for row in rows[1:] if sweep % 2 == 0 else rows[-2::-1]:
            middle = {}
            for place in row:
                near = [at[two] for one, two in links if one == place] if sweep % 2 == 0 else []
                near = near or [at[one] for one, two in links if two == place] or [at[place]]
                middle[place] = sum(near) / len(near)
            row.sort(key=lambda place: (middle[place], place))
            at |= {place: number - len(row) / 2 for number, place in enumerate(row)}
    return rows, chains


def picture(layout: Layout) -> str:
    """An SVG: what stands higher imports what stands lower."""
    rows, chains = floors(layout, reduced(layout.uses()))
    widths = [sum(_width(place) for place in row) + GAP_X * (len(row) - 1) for row in rows]
    width = 2 * MARGIN + max(widths)
    height = 2 * MARGIN + len(rows) * HEIGHT + (len(rows) - 1) * GAP_Y
    corner: dict[str, tuple[float, float]] = {}
    for floor, row in enumerate(rows):
        x = (width - widths[floor]) / 2
        for place in row:
            corner[place] = x, height - MARGIN - HEIGHT - floor * (HEIGHT + GAP_Y)
            x += _width(place) + GAP_X
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="system-ui, sans-serif">',
        "<title>The packages of Thatch: what stands higher imports what stands lower</title>",
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
        *(_edge([(corner[place][0] + _width(place) / 2, corner[place][1]) for place in chain]) for chain in chains),
    ]
    for number, name in enumerate(layout.packages, 1):
        lines += _box(name, number, layout.about[name], *corner[name])
    return "\n".join([*lines, "</svg>"]) + "\n"


def _width(place: str) -> int:
    return 8 if ">" in place else WIDTH


def _edge(places: list[tuple[float, float]]) -> str:
    """From the bottom of a box to the top of another, straight down through the rows between."""
    path = f"M{places[0][0]:g} {places[0][1] + HEIGHT:g}"
    for (x1, y1), (x2, y2) in pairwise(places):
        bend = (y1 + HEIGHT + y2) / 2
        path += f"C{x1:g} {bend:g} {x2:g} {bend:g} {x2:g} {y2:g}"
        if (x2, y2) != places[-1]:
            path += f"V{y2 + HEIGHT:g}"
    return f'<path d="{path}" fill="none" stroke="#7b8794" stroke-width="1.3"/>'


def _box(name: str, number: int, about: str, x: float, y: float) -> list[str]:
    words, texts = about.split(), [""]
    for word in words:
        if len(texts[-1]) + len(word) > 33:
            texts.append("")
        texts[-1] = f"{texts[-1]} {word}".strip()
    lines = [
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef3f8" stroke="#3b76af"/>',
        f'<text x="{x + 10:g}" y="{y + 20:g}" font-size="14" font-weight="600" fill="#1f2933">{name}/</text>',
        f'<text x="{x + WIDTH - 10:g}" y="{y + 20:g}" font-size="11" fill="#7b8794" text-anchor="end">{number}</text>',
    ]
    for at, text in enumerate(texts[:2]):
        lines.append(
            f'<text x="{x + 10:g}" y="{y + 38 + 15 * at:g}" font-size="11" fill="#3e4c59">{escape(text)}</text>'
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    layout = Layout()
    found = layout.violations()
    for each in found:
        print(each, file=sys.stderr)
    if not options.check and not found:
        PICTURE.write_text(picture(layout))
        print(f"wrote {PICTURE.relative_to(ROOT)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
