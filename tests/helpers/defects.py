"""The source with one line changed, and the tests that are to fail for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from helpers.paths import ROOT

SECONDS_MAX = 300.0  # of the tests of one defect: one that makes them wait for ever is caught, too


class Defect(NamedTuple):
    path: str  # below src/thatch
    right: str  # a line as it is, or part of one: it stands there once
    wrong: str
    test: str  # that fails for it

    def applied(self, text: str) -> str:
        count = text.count(self.right)
        assert count == 1, f"{self.path} has {self.right!r} {count} times"
        return text.replace(self.right, self.wrong)


class Copy:
    """A copy of the source, in which defects are put and taken back."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "src"
        shutil.copytree(ROOT / "src" / "thatch", self.source / "thatch")  # with the compiled kernels, and their times

    @contextmanager
    def having(self, defect: Defect) -> Iterator[None]:
        path = self.source / "thatch" / defect.path
        right = path.read_text()
        path.write_text(defect.applied(right))
        try:
            yield
        finally:
            path.write_text(right)

    def fails(self, tests: list[str]) -> tuple[bool, str]:
        """Whether a test fails with the copy, and what pytest says."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *tests]
        environment = os.environ | {"PYTHONPATH": str(self.source)}
        environment.pop("THATCH_SOAK", None)
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired as expired:
            return True, f"not done within {expired.timeout:g} seconds"
        assert done.returncode in (0, 1), done.stdout + done.stderr  # else pytest could not run them
        return done.returncode == 1, done.stdout
