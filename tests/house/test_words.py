"""One word, one meaning: public classes have names of their own, and names that were given up do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from architecture import parsed

from helpers.paths import SOURCE
from thatch.broker import Policy, Settings
from thatch.node import metrics
from thatch.node.config import Config

FILES = sorted(SOURCE.rglob("*.py"))

# Names that stood for several things, or for a thing that has a name in the field.
FORBIDDEN = set(
    "Told ToldTable told _told told_rules failures_told posted owe heard news further furthers exposes relieve "
    "pays_from Keep Kept Unkeep Standing Done End held came filling pressure unwanted_in numbering _numbering beside "
    "verified arranged".split()
)
# As settings they lack their unit; elsewhere they are plain English.
FORBIDDEN_SETTINGS = {"window", "idle", "replaced", "linger", "heartbeat", "keep"}
# A local variable may say how much is left, or what was held.
LOCAL_WORDS = {"held"}


def names(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Every identifier that a file makes, with its line, and whether it is more than a local variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            assert node.name != "left", "a verb with its object: client_left"
            yield node.name, node.lineno, True
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno, False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno, True
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno, False
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    yield each.target.id, each.lineno, True


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_that_were_given_up(path: Path) -> None:
    for name, line, is_lasting in names(parsed(path.read_text())):
        bad = name in FORBIDDEN and (is_lasting or name not in LOCAL_WORDS)
        assert not bad, f"{path}:{line}: {name!r} was given up; tests/house/test_words.py says which names"
        assert not re.match(r"_?refuse(_|$)", name), f"{path}:{line}: {name!r}: check_…, raise_… or send_refusal"


def test_no_two_public_classes_share_a_name() -> None:
    seen: dict[str, Path] = {}
    for path in FILES:
        for node in ast.walk(parsed(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert node.name not in seen, f"{node.name} in {path} and in {seen[node.name]}"
                seen[node.name] = path


def fields(struct: type) -> Iterator[str]:
    yield from struct.__annotations__
    for default in getattr(struct, "__struct_defaults__", ()):
        if hasattr(default, "__struct_fields__"):
            yield from fields(type(default))


def test_settings_end_in_their_unit() -> None:
    for struct in (Config, Settings, Policy):
        assert not set(fields(struct)) & (FORBIDDEN | FORBIDDEN_SETTINGS)


def test_metrics_use_the_words() -> None:
    text = Path(metrics.__file__).read_text()
    assert not re.search(r'"[a-z_]*(told|unwanted|in_vain|heard)[a-z_]*"', text)
