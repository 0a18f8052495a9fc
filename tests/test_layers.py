"""The layout: folder order is reading order, and imports point only to what was read before."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "thatch"

ORDER = [
    "errors",
    "page",
    "jit",
    "boxes",
    "curve",
    "labels",
    "times",
    "axis",
    "space",
    "readable",
    "points",
    "grid",
    "intervals",
    "region",
    "choice",
    "literals",
    "lexer",
    "coercion",
    "plans",
    "where",
    "to_sql",
    "cover",
    "match",
    "names",
    "columns",
    "explain",
    "snapshot",
    "table",
    "audit",
    "messages",
    "codec",
    "broker",
    "sim",
    "spark",
    "node",
    "commands",
    "demo",
    "network_demo",
    "cli",
]

# A method that is only the door to a later layer imports it in its body. Public names need these; nothing else does.
DOORS = {("space", "where"), ("region", "to_sql"), ("space", "region")}
APART = {"sim", "node", "spark"}


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, int]]:
    """The layers that a file imports, anywhere in it, with the line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import in line {node.lineno}"
            names = [
                f"{node.module}.{each.name}" if node.module == "thatch" else str(node.module) for each in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        found += [(name.split(".")[1], node.lineno) for name in names if name.startswith("thatch.")]
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if layer(path) != "__init__")


def test_every_layer_has_its_place() -> None:
    assert {layer(path) for path in FILES} == set(ORDER), "a new file takes its place in ORDER"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_upward(path: Path) -> None:
    own = layer(path)
    for other, line in imports(path):
        if other in ("__version__", own) or (own, other) in DOORS:
            continue
        assert other in ORDER, f"{path}:{line} imports thatch.{other}, which is no layer"
        assert ORDER.index(other) < ORDER.index(own), f"{path}:{line}: {own} may not import {other}"
        assert not {own, other} <= APART, f"{path}:{line}: {own} and {other} stay apart"


def test_doors_are_opened_in_bodies_only() -> None:
    for own, other in DOORS:
        tree = ast.parse((PACKAGE / f"{own}.py").read_text())
        top = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        assert all(node.module != f"thatch.{other}" for node in top), f"{own}.py imports {other} at its top"
