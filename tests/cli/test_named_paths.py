"""Paths that a stranger may name: pipes are read, and what is no file, or no path at all, is said to be that."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import thatch
from thatch.cli.main import main
from thatch.errors import CallerError, ClauseError

SPACE = "price double, symbol string"


@contextmanager
def pipe(data: bytes) -> Iterator[str]:
    """The path of a pipe, as `<(…)` gives it."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(data)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield f"/dev/fd/{reader}"
    finally:
        thread.join()
        os.close(reader)


@pytest.mark.skipif(sys.platform != "linux", reason="paths of pipes are of Linux")
def test_pipes_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pipe(SPACE.encode()) as space, pipe(b"price < 5\n") as rules:
        assert main(["validate", "--space", space, "--where", rules]) == 0
    assert capsys.readouterr().out.endswith("1 of 1 clauses are valid\n")
    with pipe(f"name = 'B1'\nspace = '{SPACE}'\n".encode()) as settings:
        assert main(["broker", settings, "--print-config"]) == 0
    assert capsys.readouterr().out.startswith('name = "B1"\n')


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert main(["broker", str(tmp_path / "fifo")]) == 2
    assert "thatch broker needs a name" in capsys.readouterr().err
    for command in (["broker", "/dev/zero"], ["validate", "--space", SPACE, "--where", "/dev/zero"]):
        assert main(command) == 2
        assert capsys.readouterr().err == "thatch: /dev/zero is not a regular file: it is a device\n"


def test_a_clause_where_a_file_belongs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules.yaml").write_text("a: price < 5\n")
    assert main(["match", "t.parquet", "price < 20", "--where", str(tmp_path / "rules.yaml")]) == 2
    assert "price < 20: no such file or folder: clauses stand in a file" in capsys.readouterr().err


def test_a_file_of_events_without_columns_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e.jsonl").write_text('{"price": NaN}\n')
    (tmp_path / "rules.yaml").write_text("a: price < 5\n")
    files = [str(tmp_path / "e.jsonl"), "--where", str(tmp_path / "rules.yaml")]
    assert main(["match", *files, "--space", SPACE]) == 2
    assert 'the first record: NaN is no JSON: write it as a string, "NaN"' in capsys.readouterr().err


def test_a_list_where_a_clause_belongs_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules.yaml").write_text("a: price < 5\nb: [1, 2]\n")
    assert main(["validate", "--space", SPACE, "--where", str(tmp_path / "rules.yaml")]) == 1
    out = capsys.readouterr().out
    assert "rules.yaml:2: is no rule: a clause, or a mapping with `id` and `where`, belongs here, not [1, 2]" in out


def test_a_comment_that_does_not_end() -> None:
    for clause in ("price < 5 /* x", "/* x", "symbol = '/*' AND /* y */ price < 5 /*"):
        with pytest.raises(ClauseError, match=r"the comment has no \*/"):
            thatch.Space.parse(SPACE).where(clause)
    thatch.Space.parse(SPACE).where("symbol = '/*' AND /* y */ price < 5")


def test_a_policy_for_a_neighbour_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no error: an operator may accept the neighbour later."""
    settings = tmp_path / "b.toml"
    settings.write_text(f"name = 'B1'\nspace = '{SPACE}'\naccept = ['south']\n[links.sout]\ntheta = 0.5\n")
    assert main(["broker", str(settings), "--print-config"]) == 0
    said = "thatch: [links.sout]: the settings name no neighbour 'sout' (did you mean 'south'?)\n"
    assert capsys.readouterr().err == said


def test_standard_input_that_is_no_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.TextIOWrapper(io.BytesIO(b"price < 5\nprice > \xff\n"), "utf-8", "surrogateescape")
    monkeypatch.setattr("sys.stdin", lines)
    assert main(["validate", "--space", SPACE, "--where", "-"]) == 2
    assert "stdin: not UTF-8 text (line 2)" in capsys.readouterr().err


def test_a_space_that_is_a_text_is_parsed_by_whoever_calls() -> None:
    with pytest.raises(CallerError, match=r"write space=Space\.parse\('price double'\)"):
        thatch.match(pa.table({"price": [1.0]}), {"a": "price < 5"}, space="price double")  # type: ignore[arg-type]
