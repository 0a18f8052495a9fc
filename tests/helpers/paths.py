"""Where things are in the repository."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
SOURCE = ROOT / "src" / "thatch"
DATA = TESTS / "data"
