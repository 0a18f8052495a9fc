"""File systems of their own for tests, where mounting is allowed: a disk that gets full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def is_allowed(*command: str) -> bool:
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(
    not is_allowed("sh", "-c", "d=$(mktemp -d) && mount -t tmpfs none $d && umount $d && rmdir $d"),
    reason="needs to be allowed to mount a tmpfs",
)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def fill(folder: Path, name: str = "filler") -> Path:
    filler = folder / name
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler
