"""The broker stays in parts: files and classes are small, and a class alone assigns its attributes."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from architecture import SOURCE

BROKER_LINES_MAX, METHODS_MAX = 400, 30
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def trees(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def large_classes(source: Path) -> list[str]:
    """Classes of the broker with too many methods, properties among them."""
    return [
        f"{path.name}: {node.name} has {count} methods"
        for path, tree in trees(source / "broker")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and (count := sum(isinstance(each, FUNCTIONS) and not _is_overload(each) for each in node.body)) > METHODS_MAX
    ]


def _is_overload(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in function.decorator_list)


def own_attributes(source: Path) -> set[str]:
    """What our classes call their attributes: assigned to `self`, or declared in the body of the class."""
    found = set()
    for _, tree in trees(source):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found |= {
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                }
            found |= {target.attr for target in _targets(node) if _is_self(target.value)}
    return found


def assigned_from_outside(source: Path) -> list[str]:
    """Where the broker or the node assigns, deletes or fills an attribute of ours other than by `self`."""
    own = own_attributes(source)
    return [
        f"{path.name}:{target.lineno}: {ast.unparse(target)}"
        for package in ("broker", "node")
        for path, tree in trees(source / package)
        for node in ast.walk(tree)
        for target in _targets(node)
        if target.attr in own and not _is_self(target.value)
    ]


def _targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that a statement assigns, deletes, or assigns items of; and those of `setattr`."""
    waiting: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        waiting += node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.NamedExpr | ast.comprehension):
        waiting.append(node.target)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        waiting.append(node.optional_vars)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
        name = node.args[1]
        attribute = str(name.value) if isinstance(name, ast.Constant) else "name"
        yield ast.copy_location(ast.Attribute(node.args[0], attribute, ast.Store()), node)
    while waiting:
        target = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += target.elts
        elif isinstance(target, ast.Starred | ast.Subscript):
            waiting.append(target.value)
        elif isinstance(target, ast.Attribute):
            yield target


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "self"


def test_the_broker_is_one_file_among_many() -> None:
    assert len((SOURCE / "broker" / "broker.py").read_text().splitlines()) <= BROKER_LINES_MAX
    assert {"restore.py", "resync.py", "growth.py", "inspect.py"} <= {path.name for path, _ in trees(SOURCE / "broker")}


def test_no_class_of_the_broker_is_large() -> None:
    assert large_classes(SOURCE) == []


def test_a_class_alone_assigns_its_attributes() -> None:
    assert assigned_from_outside(SOURCE) == []


@pytest.mark.parametrize(
    "line",
    [
        "link.is_durable = True",
        "link.outbound.subscriptions.sent = {}",
        "link.counts.events_in += 1",
        "other, link.members = 1, ()",
        "del link.waiting",
        "link.waiting[0].seq = 7",
        "link.outbound.subscriptions.wheres['s'] = 'x < 5'",
        "setattr(link, 'is_durable', True)",
        "for link.session in (1, 2): pass",
    ],
)
def test_an_assignment_from_outside_is_found(line: str, tmp_path: Path) -> None:
    for package in ("broker", "node"):
        shutil.copytree(SOURCE / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "broker" / "settling.py"
    path.write_text(f"{path.read_text()}\n\ndef spoil(link):\n    {line}\n")
    (found,) = assigned_from_outside(tmp_path)
    assert found.startswith("settling.py:")


def test_a_class_that_grew_is_found(tmp_path: Path) -> None:
    shutil.copytree(SOURCE / "broker", tmp_path / "broker", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "broker" / "broker.py"
    more = "".join(f"    def more{at}(self) -> None: ...\n" for at in range(METHODS_MAX))
    path.write_text(path.read_text().replace("    def _blame(", f"{more}\n    def _blame("))
    (found,) = large_classes(tmp_path)
    assert "Broker has" in found
