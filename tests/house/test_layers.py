"""The layout: folder order is reading order, imports point only to what was read before, and the picture shows it."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from architecture import PICTURE, SOURCE, Layout, parsed, picture

KERNELS = {"kernel", "borrowing", "inlined", "inner"}


def test_imports_follow_the_reading_order() -> None:
    assert Layout().violations() == []


def test_the_picture_is_of_the_present_imports() -> None:
    assert PICTURE.read_text() == picture(Layout()), "python scripts/architecture.py draws it again"


def test_the_package_root_has_three_modules() -> None:
    assert sorted(path.name for path in SOURCE.glob("*.py")) == ["__init__.py", "errors.py", "jit.py"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Of the source, to break."""
    ignored = shutil.ignore_patterns("__pycache__", "example_data")
    return Path(shutil.copytree(SOURCE, tmp_path / "thatch", ignore=ignored))


def append(path: Path, line: str) -> None:
    path.write_text(f"{path.read_text()}\n{line}\n")


def test_an_import_against_the_order_of_packages_is_found(copy: Path) -> None:
    append(copy / "matching" / "scan.py", "from thatch.table.names import Names")
    assert any(each.startswith("matching.scan:") and "table.names" in each for each in Layout(copy).violations())


def test_an_import_in_the_body_of_a_function_is_found(copy: Path) -> None:
    append(copy / "cover" / "verdict.py", "def late() -> None:\n    import thatch.spark.text")
    assert any("spark.text is read later" in each for each in Layout(copy).violations())


def test_an_import_against_the_order_inside_a_package_is_found(copy: Path) -> None:
    append(copy / "region" / "intervals.py", "from thatch.region.term import Term")
    assert any("region.term is read later" in each for each in Layout(copy).violations())


def test_an_import_from_the_own_package_is_found(copy: Path) -> None:
    append(copy / "cover" / "verdict.py", "from thatch.cover import ENGINES")
    assert any("imports from its own package cover" in each for each in Layout(copy).violations())


def test_packages_that_stay_apart(copy: Path) -> None:
    append(copy / "node" / "logs.py", "from thatch.sim.costs import Costs")
    assert any("node and sim stay apart" in each for each in Layout(copy).violations())


def test_a_file_that_no_docstring_names_is_found(copy: Path) -> None:
    (copy / "grid" / "forgotten.py").write_text('"""Nobody knows me."""\n')
    assert Layout(copy).violations() == ["grid: the docstring does not name forgotten"]


def test_a_file_that_is_gone_is_found(copy: Path) -> None:
    (copy / "rivals" / "summary.py").unlink()
    assert "rivals: the docstring names summary, which is not there" in Layout(copy).violations()


def test_an_outdated_picture_is_found(copy: Path) -> None:
    append(copy / "cli" / "tabular.py", "from thatch.rivals.counting import CountingMatcher")
    assert picture(Layout(copy)) != picture(Layout())


def test_only_the_space_compares_label_codes() -> None:
    """Whoever holds coordinates asks `Space.is_current`, or computes within `Space.stable`."""
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "space":
            assert "label_codes is" not in path.read_text().replace("label_codes is None", ""), path


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_are_short(path: Path) -> None:
    """A file over 600 lines says why at its head; only kernels are over 70."""
    text = path.read_text()
    tree = parsed(text)
    assert text.count("\n") <= 600 or "Longer than 600 lines" in (ast.get_docstring(tree) or ""), path
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            kernel = any(isinstance(each, ast.Name) and each.id in KERNELS for each in node.decorator_list)
            assert kernel or node.end_lineno - node.lineno < 70, f"{path}:{node.lineno}: {node.name}"
