"""The commit that later ones are compared with, in a worktree of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EARLIER = "e094712"
HERE = Path(__file__).parents[1]


@contextmanager
def earlier_tree() -> Iterator[Path]:
    """The worktree, for a while."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "earlier"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), EARLIER], cwd=HERE, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=HERE, check=False)


def environment_of(tree: Path) -> dict[str, str]:
    """In which Python finds the source of a tree, and keeps what it compiles."""
    return os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": "1"}


# At the earlier commit the commands stand in another module.
MAIN = (
    "import sys\n"
    "try:\n    from thatch.cli.main import main\n"
    "except ImportError:\n    from thatch.cli import main\n"
    "status = main()\n"
)
