"""What operators say to brokers: `thatch admin`, by its sockets."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from thatch.cli.main import main


async def admin(socket: Path, *arguments: str, status: int | None = 0) -> Any:
    """The answer, or the error. `status`: which exit status it has to be; None: any."""
    with (
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", StringIO())  # nobody is there to be asked
        command = ["admin", *arguments, "--socket", str(socket), "--json"]
        found = await asyncio.to_thread(main, command)
    assert status in (None, found), err.getvalue()
    return json.loads(out.getvalue()) if out.getvalue() else err.getvalue()


def documented(page: Path, section: str) -> list[list[str]]:
    """The arguments of each `thatch admin` in a section of a page, without comments."""
    text = page.read_text().split(f"### {section}\n", 1)[1].split("\n## ", 1)[0].split("\n### ", 1)[0]
    lines = [line.split("#", 1)[0].split() for line in text.splitlines() if line.startswith("    thatch admin ")]
    return [words[2:] for words in lines]
