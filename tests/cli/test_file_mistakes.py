"""What is wrong with files, and options that do not go together: a sentence that names the place, and what to do."""

from __future__ import annotations

import codecs
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thatch.cli import commands
from thatch.cli.main import main
from thatch.cli.terminal import Counter, clear_progress, show_progress
from thatch.local.csv_events import last_end

SPACE = "price double not null 0..1000, symbol string"
MATCH = ["match", "t.csv", "--space", SPACE, "--where"]
VALIDATE = ["validate", "--space", SPACE, "--file"]


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)
    captured = capsys.readouterr()
    return status, captured.out + captured.err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some events and rules, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("price,symbol\n12.5,A\n80,B\n")
    (tmp_path / "a.txt").write_text("price < 20\n")
    return tmp_path


UTF16 = codecs.BOM_UTF16_LE + "id,where\na,price < 5\n".encode("utf-16-le")
RULES = [
    ("latin.csv", "id,where\ncafé,price < 5\n".encode("latin-1"), "latin.csv: not UTF-8 text (line 2): save it as"),
    ("binary.csv", bytes(range(256)) * 40, "binary.csv: not UTF-8 text"),
    ("utf16.csv", UTF16, "utf16.csv: not UTF-8 text (UTF-16?): save it as text in UTF-8"),
    ("latin.txt", b"price < 5\nsymbol = '\xe9'\n", "latin.txt: not UTF-8 text (line 2)"),
    ("quote.csv", b'id,where\ncheap,"price < 20\ndear,price > 30\n', "quote.csv:2: a quote is not closed"),
    ("in.csv", b"id,where\ncheap,symbol IN ('A', 'B')\n", "in.csv:2: malformed: 3 fields, the header has 2: a clause "),
    ("few.csv", b"id,where\ncheap\n", "few.csv:2: malformed: 1 field, the header has 2\n"),
    ("empty.csv", b"", "empty.csv: cannot be read as CSV: it is empty"),
    ("empty.json", b" \n", "empty.json: it is empty"),
    ("none.csv", b"id,where\n", "none.csv: holds no rules"),
    ("none.yaml", b"# nothing yet\n", "none.yaml: holds no rules"),
    ("none.txt", b"# nothing yet\n", "none.txt: holds no rules"),
    ("a.xlsx", b"PK\x03\x04", "a.xlsx: is of a kind that is not read. Rules are read from text with a clause a line"),
    ("a.conf", b"[rules]\ncheap = price < 5\n", "a.conf: '[rules]' is no clause. Rules are read from text"),
    ("query.yaml", b"- {id: a, query: price < 5}\n", "(is `query` meant?)"),
    ("query.csv", b"id,query\na,price < 5\n", "query.csv: has no column 'where'. Is 'query' meant?"),
    ("plain.csv", b"cheap,price < 5\n", "plain.csv: has a rule in its first line, where the header belongs: id,where"),
    (
        "semi.csv",
        b"id;where\na;price < 5\n",
        "semi.csv: has one column, 'id;where'. Another delimiter? --delimiter ';'",
    ),
    ("tab.yaml", b"a:\n\twhere: price < 5\n", "tab.yaml:2, column 1: is not YAML: a tab: indent with spaces"),
    ("id.yaml", b"- {id: [1, 2], where: price < 5}\n", "id.yaml:1: an id is a text or a whole number, not [1, 2]"),
    ("rules.yaml", b"rules:\n", "rules.yaml: `rules` holds nothing"),
    ("twice.json", b'{"id": "a", "where": "price < 1", "where": "TRUE"}\n', "twice.json:1: the key 'where' is given"),
    ("single.json", b"{'id': 'a'}", "single.json: is not JSON: line 1, column 2: a name in double quotes is missing"),
    ("open.json", b'[{"id": "a", "where": "x"}', "open.json: is not JSON: line 1, column 27: it ends too early"),
    ("twice.toml", b'name = "a"\nname = "b"\n', "twice.toml: is not TOML: line 2: 'name' is given twice"),
    ("quote.toml", b'cheap = "price < 5\nx = 1\n', "quote.toml: is not TOML: line 1: a quote is not closed"),
    ("open.toml", b"a = [1,\n", "open.toml: is not TOML: line 1: a bracket is not closed"),
]


@pytest.mark.parametrize(("name", "data", "meant"), RULES, ids=[each[0] for each in RULES])
@pytest.mark.parametrize("command", [MATCH, VALIDATE], ids=["match", "validate"])
def test_files_of_rules(
    name: str, data: bytes, meant: str, command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_bytes(data)
    status, said = answer([*command, name], capsys)
    listed = command is VALIDATE and any(word in meant for word in ("malformed", "meant?)", "an id is"))
    assert status == (1 if listed else 2) and meant in said, said
    assert "Traceback" not in said and "Exception ignored" not in said


def test_tabs_separate_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.tsv").write_text("id\twhere\ncheap\tprice < 20\n")
    (folder / "t.tsv").write_text("price\tsymbol\n12.5\tA\n")
    for delimiter in ([], ["--delimiter", "tab"], ["--delimiter", "\\t"]):
        command = ["match", "t.tsv", "--where", "a.tsv", "--space", SPACE, *delimiter]
        status, said = answer(command, capsys)
        assert status == 0 and "1 match" in said, said
    assert answer([*VALIDATE, "a.tsv"], capsys)[0] == 0


EVENTS = [
    (["t.csv", "--where", "a.txt"], "declare a space with --space, such as 'price double, symbol string'"),
    (["few.csv", "--where", "a.txt", "--space", SPACE], "few.csv:3: malformed: 1 field, the header has 2\n    7\n"),
    (["latin.csv", "--where", "a.txt", "--space", SPACE], "latin.csv: not UTF-8 text (line 3)"),
    (["utf16.csv", "--where", "a.txt", "--space", SPACE], "utf16.csv: not UTF-8 text (UTF-16?)"),
    (["t.parquet", "--where", "a.txt", "--input-format", "csv", "--space", SPACE], "not UTF-8 text (Parquet?)"),
    (
        ["damaged.parquet", "--where", "a.txt"],
        "damaged.parquet: cannot be read as Parquet: it is a Parquet file",
    ),
    (["mixed", "--where", "a.txt"], "mixed: holds files of several kinds (.csv, .parquet): give one file, or a folder"),
    (["t.csv", "--where", "mixed"], "mixed: holds files of several kinds"),
    (["-", "--where", "a.txt", "--space", SPACE], "events are not read from standard input"),
    (["hollow", "--where", "a.txt", "--space", SPACE], "hollow: does not tell its kind by its name"),
    (["http://x/y.parquet", "--where", "a.txt"], "http://x/y.parquet cannot be read: download the file"),
    (
        ["s3://x/y.parquet", "--where", "a.txt"],
        "s3://x/y.parquet cannot be read: download the file, or read it",
    ),
    (["t.parquet", "--where", "a.txt", "--space", "prise double"], "(did you mean 'price'?)"),
    (["a.txt", "--where", "t.parquet"], "t.parquet: has no column 'id'; its columns are 'price'"),
    (["a.txt", "--where", "t.parquet"], "have you swapped them?"),
    (["t.parquet", "--where", "prise.csv"], "'low_prise' looks like bounds of 'price'"),
    (["t.parquet", "--where", "a.txt", "--output", "out.xlsx"], "call it NAME.parquet, NAME.csv or NAME.json"),
    (["t.parquet", "--where", "a.txt", "--output", "o.csv", "--format", "parquet"], "o.csv is csv by its name, and pa"),
    (["t.parquet", "--where", "a.txt", "--output", ""], "--output is the path of a folder, not ''"),
    (["t.parquet", "--where", "a.txt", "--output", "a.txt/x"], "a.txt/x cannot be written there: a.txt is a file"),
    (["t.parquet", "--where", "a.txt", "--output", "/proc/x"], "/proc/x cannot be written there: "),
    (["t.parquet", "--where", "a.txt", "--explain", "--where", "no.txt"], "no.txt: no such file"),
    (["t.parquet", "--where", "a.txt", "--engine", "local", "--master", "yarn"], "--master is for --engine spark"),
    (["t.parquet", "--where", "a.txt", "--engine", "local", "--conf", "a=b"], "--conf is for --engine spark"),
    (["t.parquet", "--where", "a.txt", "--engine", "local", "--strategy", "arrow"], "--strategy is for --engine spark"),
    (["t.parquet", "--where", "a.txt", "--delimiter", "semicolon"], "such as ';', not 'semicolon'"),
    (["t.parquet", "--where", "a.txt", "--delimiter", ""], "--delimiter is one character, such as ';', not ''"),
    (["t.parquet", "--where", "wrong.txt"], "wrong.txt:2: line 1, column 14: no attribute 'prise'"),
    (["t.parquet", "--where", "wrong.txt"], "\n    price < 5 OR prise < 3\n                 ^\n"),
    (["t.parquet", "--rules", "a.txt"], "no option --rules (did you mean '--where'?)"),
    (["t.parquet", "--file", "a.txt"], "no option --file (did you mean '--where'?)"),
    (["t.parquet", "--where", "a.txt", "--space", SPACE, "--space", SPACE], "--space is given twice"),
    (["t.parquet", "--where", "a.txt", "--on-error", "skip"], "choose another one with --skipped PATH"),
]


@pytest.fixture
def many_files(folder: Path) -> Path:
    pq.write_table(pa.table({"price": [float(each) for each in range(30_000)]}), folder / "t.parquet")
    data = bytearray((folder / "t.parquet").read_bytes())
    data[3000:8000] = bytes(5000)
    (folder / "damaged.parquet").write_bytes(data)
    for name in ("mixed", "hollow"):
        (folder / name).mkdir()
    (folder / "mixed" / "a.csv").write_text("price\n1\n")
    (folder / "mixed" / "b.parquet").write_bytes((folder / "t.parquet").read_bytes())
    (folder / "few.csv").write_text("price,symbol\n1,A\n7\n")
    (folder / "latin.csv").write_bytes("price,symbol\n1,A\n2,é\n".encode("latin-1"))
    (folder / "utf16.csv").write_bytes("price,symbol\n1,A\n".encode("utf-16"))
    (folder / "prise.csv").write_text("id,low_prise\na,3\n")
    (folder / "wrong.txt").write_text("TRUE\nprice < 5 OR prise < 3\n")
    (folder / "thatch-skipped" / "events").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(("arguments", "meant"), EVENTS)
def test_files_of_events(
    arguments: list[str], meant: str, many_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = answer(["match", *arguments], capsys)
    assert status == 2 and meant in said, said
    assert "Traceback" not in said and "Exception ignored" not in said and ".part" not in said


COVERS = ["covers", "--space", SPACE]
OPTIONS = [
    ([*COVERS, "price < 3", "--file", "bounds.csv"], "bounds.csv: has bounds in place of clauses"),
    ([*COVERS, "price < 3", "--file", "no.yaml"], "no.yaml: holds no rules"),
    ([*COVERS, "prise < 3"], "the clause: line 1, column 1: no attribute 'prise' (did you mean 'price'?)\n    prise"),
    (["validate", "--space", SPACE, "--file", "a.txt", "b.txt"], "b.txt is a file: --file b.txt"),
    (["explain", "--space", SPACE, "TRUE", "--event", '{"price": 1, "price": 2}'], "the key 'price' is given twice"),
    (["plan", "--scenario", "line", "--subscriptions", "-1"], "--subscriptions is at least 1, not -1"),
    (["plan", "--scenario", "line", "--degree", "0"], "--degree is at least 1, not 0"),
    (["plan", "--scenario", "line", "--events", "-3"], "--events is at least 0, not -3"),
    (["plan", "--scenario", "line", "--file", "a.txt"], "--scenario has its own clauses: leave out --file"),
    (["plan", "--space", SPACE, "price < 3", "--degree", "3"], "--degree is the size of a scenario"),
    (["plan", "--space", SPACE, "price < 3", "--to-merge", "0"], "--to-merge goes with --to-cover ENGINE"),
    (["plan", "--space", SPACE, "price < 3", "--unsubscribe", "x"], "or 'clause N': 'clause 1'"),
    (["simulate", "line", "--subscriptions", "0"], "--subscriptions is at least 1, not 0"),
    (["simulate", "line", "--graph", "simplified"], "--graph goes with --cover pairwise"),
    (["simulate", "line", "--theta", "2"], "--theta is a share of events from 0 to below 1, not 2"),
    (["simulate", "line", "--output", "a.txt"], "a.txt is a file, a folder is needed"),
    (["demo", "--save", "a.txt"], "a.txt is a file, a folder is needed"),
    (["demo", "extra"], "demo: 'extra' is one argument too many\n"),
    (["reduce", "a.txt"], "reduce needs --where: --where a.txt"),
    (["learn", "none.csv", "--where", "a.txt", "--space", SPACE], "there are no events"),
]


@pytest.mark.parametrize(("arguments", "meant"), OPTIONS)
def test_options(arguments: list[str], meant: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bounds.csv").write_text("id,low_price\na,3\n")
    (folder / "no.yaml").write_text("[]\n")
    (folder / "b.txt").write_text("TRUE\n")
    (folder / "none.csv").write_text("price,symbol\n")
    status, said = answer(arguments, capsys)
    assert status == 2 and meant in said, said


def test_bounds_that_cross_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "b.csv").write_text("id,low_price,high_price\na,10,5\nb,1,500\n")
    status, said = answer([*MATCH, "b.csv"], capsys)
    assert status == 0 and "thatch: rule a: low_price 10.0 is above high_price 5.0: no event can match it\n" in said


def test_an_empty_file_among_others_is_a_warning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "none.yaml").write_text("[]")
    status, said = answer([*MATCH, "a.txt", "--where", "none.yaml"], capsys)
    assert status == 0 and "thatch: none.yaml: holds no rules\n" in said


@pytest.mark.parametrize("arguments", [["version"], ["-V"], ["-v"], ["--version"]])
def test_the_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(arguments, capsys)
    assert status == 0 and said.startswith("thatch 0.")


def test_help_after_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(["match", "help"], capsys)
    assert status == 0 and "usage: thatch match" in said


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COVERS, "prise < 3", "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"] in captured.err
    with pytest.raises(SystemExit):
        main(["covers", "--json"])
    assert json.loads(capsys.readouterr().out) == {"error": "covers needs CLAUSE, --space"}


def test_a_mistake_of_ours_is_no_answer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("thatch.cli.covers.space_of", fails)
    monkeypatch.delenv(commands.DEBUG, raising=False)
    status, said = answer([*COVERS, "price < 3"], capsys)
    assert status == 3 and said.startswith("thatch: this is a mistake in Thatch, please report it: KeyError: 'oops'; ")
    monkeypatch.setenv(commands.DEBUG, "1")
    assert "Traceback" in answer([*COVERS, "price < 3"], capsys)[1]


def test_an_interrupt_while_commands_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run", interrupted)
    assert main([]) == 130


def test_a_folder_that_may_not_be_read(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "npd").mkdir()
    monkeypatch.setattr(os, "access", lambda *arguments: False)
    status, said = answer(["match", "npd", "--where", "a.txt", "--space", SPACE], capsys)
    assert status == 2 and "npd: permission denied" in said


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_escapes_where_there_are_no_colours(plain: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in plain.items():
        monkeypatch.setenv(name, value)
    seen = Terminal()
    monkeypatch.setattr("sys.stderr", seen)
    counted = Counter("rules", 3_000, after=0.0)
    counted(1_200)
    show_progress("3 s")
    clear_progress()
    with pytest.raises(SystemExit):
        main(["covers"])
    assert "1,200 of 3,000 rules" in seen.getvalue() and "\033" not in seen.getvalue()


def test_wrong_usage_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    seen = Terminal()
    monkeypatch.setattr("sys.stderr", seen)
    with pytest.raises(SystemExit):
        main(["covers"])
    assert seen.getvalue().startswith("\033[31mthatch:\033[0m covers needs")


def test_rules_from_a_terminal_are_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("price < 20\n"))
    status, said = answer([*MATCH, "-"], capsys)
    assert status == 0 and "clauses, one a line; Ctrl-D ends\n" in said


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"a,b\nc", b"a,b\n"),
        (b'a,"b\nc\n', b""),
        (b'a,"b\nc"\n"d', b'a,"b\nc"\n'),
        (b'a,"b""\n"\nc', b'a,"b""\n"\n'),
        (b'5" pipe,b\nx,"y\n', b'5" pipe,b\n'),
        (b'5" pipe,"b\n"\nx', b'5" pipe,"b\n"\n'),
        (b"", b""),
    ],
)
def test_where_the_last_whole_record_of_csv_ends(data: bytes, whole: bytes) -> None:
    assert data[: last_end(data, ",")] == whole


def test_the_completion_has_no_advertisement(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tqdm" not in answer(["completion", "bash"], capsys)[1]
