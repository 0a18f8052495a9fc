"""The broker stays in parts: files and classes are small, and a class alone assigns its attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest
from architecture import SOURCE, parsed

BROKER_LINES_MAX, METHODS_MAX = 400, 30
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> dict[str, ast.Module]:
    """By the path of each file in the source."""
    return {str(path.relative_to(SOURCE)): parsed(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def large_classes(path: str, tree: ast.Module) -> list[str]:
    """Classes with too many methods, properties among them."""
    return [
        f"{path}: {node.name} has {count} methods"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and (count := sum(isinstance(each, FUNCTIONS) and not _is_overload(each) for each in node.body)) > METHODS_MAX
    ]


def _is_overload(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in function.decorator_list)


@cache
def own_attributes() -> set[str]:
    """What our classes call their attributes: assigned to `self`, or declared in the body of the class."""
    found = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            for each in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    found.add(each.target.id)
            found |= {target.attr for target in _targets(node) if _is_self(target.value)}
    return found


def assigned_from_outside(path: str, tree: ast.Module) -> list[str]:
    """Where a file assigns, deletes or fills an attribute of a class of ours other than by `self`."""
    return [
        f"{path}:{target.lineno}: {ast.unparse(target)}"
        for node in ast.walk(tree)
        for target in _targets(node)
        if target.attr in own_attributes() and not _is_self(target.value)
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
    assert {f"broker/{name}.py" for name in ("restore", "resync", "growth", "inspect")} <= trees().keys()


def test_no_class_of_the_broker_is_large() -> None:
    ours = [(path, tree) for path, tree in trees().items() if path.startswith("broker/")]
    assert [each for path, tree in ours for each in large_classes(path, tree)] == []


def test_a_class_alone_assigns_its_attributes() -> None:
    ours = [(path, tree) for path, tree in trees().items() if path.startswith(("broker/", "node/"))]
    assert [each for path, tree in ours for each in assigned_from_outside(path, tree)] == []


def test_nobody_asks_which_kind_of_cover_set_it_has() -> None:
    """What they share is in `CoverSet`."""
    kinds = {"ActiveSet", "RelationGraph"}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("isinstance", "type")
            ):
                named = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                assert not named & kinds, f"{path}:{node.lineno}"


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
def test_an_assignment_from_outside_is_found(line: str) -> None:
    text = (SOURCE / "broker" / "settling.py").read_text()
    (found,) = assigned_from_outside("broker/settling.py", ast.parse(f"{text}\n\ndef spoil(link):\n    {line}\n"))
    assert found.startswith("broker/settling.py:")


def test_a_class_that_grew_is_found() -> None:
    text = (SOURCE / "broker" / "broker.py").read_text()
    more = "".join(f"    def more{at}(self) -> None: ...\n" for at in range(METHODS_MAX))
    (found,) = large_classes("broker/broker.py", ast.parse(text.replace("    def _blame(", f"{more}\n    def _blame(")))
    assert "Broker has" in found
