"""The README's example prints what its comments say."""

from __future__ import annotations

import re

import pytest

from helpers.paths import ROOT

README = ROOT / "README.md"


def test_the_first_example(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
    exec(code, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\) *# (.*)", code)


def test_both_commands_are_on_the_first_screen() -> None:
    first_screen = "\n".join(README.read_text(encoding="utf-8").splitlines()[:25])
    assert "make demo" in first_screen and "make test" in first_screen
