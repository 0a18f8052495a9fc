"""What a newcomer types wrong, and what it is answered: a sentence of our own, with the name that was meant."""

from __future__ import annotations

import io
import json
import logging
import re
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thatch
from helpers.paths import ROOT
from thatch.cli.main import main
from thatch.cli.terminal import styled
from thatch.errors import CallerError, SpaceError, StoreError
from thatch.node.config import RANGES, Config
from thatch.node.damage import unusable
from thatch.node.lock import StoreLock
from thatch.node.server import Node
from thatch.protocol.address import checked_url

SPACE = "price double not null 0..1000, symbol string, side enum('buy', 'sell')"
# How libraries talk: none of it is ours.
FOREIGN = re.compile(
    r"msgspec|aiohttp|sqlite3|Errno|Expected `|Object (?:contains|missing)|JSON is malformed|Input data was|"
    r"Cannot connect to host|file is not a database|unable to open database|invalid choice|unrecognized arguments|"
    r"the following arguments|Invalid value|Expected '|not allowed with|could match|explicit|could not convert|"
    r"__init__|Traceback|org\.apache|java\."
)


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status, and what is said."""
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(ended.code or 0)
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_alone_it_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer([], capsys)
    assert status == 0 and "usage: thatch" in said and "thatch demo" in said


COVERS = ["covers", "--space", SPACE, "--by", "price < 5", "price < 3"]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["mach"], "no command 'mach': did you mean `thatch match`?"),
        (["--verson"], "no option --verson (did you mean '--version'?)"),
        (["match", "e.parquet", "--wehre", "r.txt"], "no option --wehre (did you mean '--where'?)"),
        (["match", "e.parquet", "--where", "r.txt", "--engine", "sprk"], "not 'sprk' (did you mean 'spark'?)"),
        (["match", "e.parquet", "--where", "r.txt", "--strategy", "natve"], "(did you mean 'native'?)"),
        (["match", "e.parquet", "--where", "r.txt", "--on-error", "skp"], "(did you mean 'skip'?)"),
        ([*COVERS, "--cover", "exat"], "no cover engine 'exat' (did you mean 'exact'?)"),
        (["covers", "--space", "price duble", "price < 3"], "a type (did you mean 'double'?)"),
        (["covers", "--space", SPACE, "prise < 3"], "no attribute 'prise' (did you mean 'price'?)"),
        (["covers", "--space", SPACE, "--time-zone", "Europe/Berln", "price < 3"], "(did you mean 'Europe/Berlin'?)"),
        (["simulate", "unsubscripions"], "no scenario 'unsubscripions' (did you mean 'unsubscriptions'?)"),
        (["simulate", "unsubscriptions", "--graph", "simplfied"], "(did you mean 'simplified'?)"),
        (["simulate", "unsubscriptions", "--costs", "mesured"], "(did you mean 'measured'?)"),
        (["broker", "--name", "B", "--space", SPACE, "--routing", "event"], "(did you mean 'events'?)"),
        (["broker", "--name", "B", "--space", SPACE, "--log", "jsn"], "not 'jsn' (did you mean 'json'?)"),
        (["completion", "bsh"], "(did you mean 'bash'?)"),
        (["help", "claus"], "did you mean `thatch help clauses`?"),
        (["help", "mtch"], "did you mean `thatch match`?"),
        (["simulate", "--brokers", "abc"], "no option --brokers; `thatch simulate --help` lists them"),
        (["demo", "--size", "huge"], "no option --size; `thatch demo --help` lists them"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = answer(arguments, capsys)
    assert status == 2 and meant in said and not FOREIGN.search(said), said


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("spac = 'x int'", "no setting 'spac' (did you mean 'space'?)"),
        ("[flow]\nslow_clent = 'drop'", "no setting 'flow.slow_clent' (did you mean 'flow.slow_client'?)"),
        ("[flow]\nslow_client = 'drp'", "not 'drp' (did you mean 'drop'?)"),
        ("[policy]\ncover = 'exat'", "no cover engine 'exat' (did you mean 'exact'?)"),
        ("[policy.options]\nbitts = 3", "does not take these options: it has no option 'bitts'"),
        ("[links.B2]\nteta = 0.5", "no setting 'links.B2.teta' (did you mean 'links.B2.theta'?)"),
        ("[client]\nport = 'x'", "client.port is a whole number, not 'x'"),
        ("[client]\nport = true", "client.port is a whole number, not True"),
        ("log = 3", "log is one of"),
        ("[cells]\nattributes = ['prise']", "(did you mean 'price'?)"),
        ("[cells]\npath = 'hilbrt'", "no curve 'hilbrt' (did you mean 'hilbert'?)"),
        ("neighbours = ['B2']", "neighbours is an object, not a list"),
        ("listen = 7878", "listen = 7878: write [client] port = 7878, a line each"),
        ("overlay = '127.0.0.1:7'", 'write [overlay] host = "127.0.0.1" port = 7, a line each'),
        ("[client]\nport = 7\n[overlay]\nport = 7", "are the same port, 7; give two"),
        ("name = ", "not TOML: line 1, column 8 cannot be read"),
        ("neighbours = [", "not TOML: it ends too early"),
        ('[policy]\nretract = "no"', "policy.retract is true, false or \"union\", not 'no'"),
        ("[links.B2]\nretract = 3", "links.B2.retract is true, false"),
        ("[flow]\nclient_bytes_max = -1", "flow.client_bytes_max is at least 1, not -1"),
        ("[timing]\nheartbeat_seconds = 0", "timing.heartbeat_seconds is above 0, not 0"),
        ("[pruning]\nhistory_seconds = nan", "pruning.history_seconds is above 0, not nan"),
        ("[cells]\nbits = 3", "cells.attributes is missing"),
        ("[client]\nhost = '0.0.0.0'", "client.host: 0.0.0.0 is not a loopback address"),
        ("[client]\nhost = '0.0.0.0'", "Set exposed = true"),
        ("[overlay]\nport = 99999", "overlay.port is a port, a number from 0 to 65535, not 99999"),
        ("\nname = B1", "not TOML: line 2, column 8 cannot be read: texts stand in quotes"),
    ],
)
def test_a_misspelt_setting_gets_a_suggestion(
    text: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.toml").write_text(f"{text}\n")
    status, said = answer(["broker", str(tmp_path / "b.toml"), "--name", "B1", "--space", SPACE], capsys)
    assert status == 2 and meant in said and not FOREIGN.search(said), said


def test_all_that_is_wrong_in_a_file_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.toml").write_text("spac = 'x int'\n[flow]\nclient_bytes_max = 'x'\n")
    said = answer(["broker", str(tmp_path / "b.toml")], capsys)[1]
    assert "'spac'" in said and "flow.client_bytes_max is a whole number, not 'x'" in said


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        (lambda: thatch.SubscriptionTable(thatch.Space.parse(SPACE), "exat"), "'exact'"),
        (lambda: thatch.SubscriptionTable(thatch.Space.parse(SPACE), "hilbert", bist=3), "'bits'"),
        (lambda: thatch.match([], {}, on_error="skp"), "'skip'"),
        (lambda: thatch.Space.parse("at timestmp"), "'timestamp'"),
        (lambda: table().match({"symbol": "A", "prise": 3}), "'price'"),
        (lambda: thatch.Space.from_json('{"atributes": []}'), "'attributes'"),
    ],
)
def test_a_misspelt_name_in_a_program_gets_a_suggestion(wrong: Any, meant: str) -> None:
    with pytest.raises(CallerError, match=re.escape(f"did you mean {meant}?")) as caught:
        wrong()
    assert not FOREIGN.search(str(caught.value))


def table() -> thatch.SubscriptionTable:
    return thatch.SubscriptionTable(thatch.Space.parse(SPACE))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        (lambda: thatch.Space("symbol string"), "by Space.parse('symbol string')"),  # type: ignore[arg-type]
        (lambda: thatch.SubscriptionTable("price double"), "space is a Space, not 'price double'"),  # type: ignore[arg-type]
        (lambda: thatch.covers(table().space, ["price < 5"], "price < 3"), "covers(members, clause, space)"),  # type: ignore[arg-type]
        (lambda: table().subscribe("price < 15", "bob"), "the id comes first: subscribe(id, clause)"),
        (lambda: table().match({"symbol": "A", "prise": 3}), "the value is missing; 'prise' is no attribute"),
        (lambda: thatch.reduce({"a": "price < 5"}), "space (--space) or events (--events)"),
        (lambda: checked_url(5), "a text such as ws://127.0.0.1:7878, not 5"),  # type: ignore[arg-type]
    ],
)
def test_arguments_in_the_wrong_place_or_of_another_type(wrong: Any, meant: str) -> None:
    with pytest.raises(CallerError, match=re.escape(meant)):
        wrong()


def test_an_id_that_reads_like_a_clause_is_an_id() -> None:
    with pytest.raises(CallerError) as caught:
        table().subscribe("bob", "price < < 15")
    assert "the id comes first" not in str(caught.value)
    table().subscribe("price < 15", "price < 20")


def test_a_value_that_is_null_is_not_said_to_be_misspelt() -> None:
    with pytest.raises(CallerError) as caught:
        table().match({"price": None, "volume": 3})
    assert "did you mean" not in str(caught.value)


def test_a_time_zone_without_a_space_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"price": [1.0]}), tmp_path / "t.parquet")
    (tmp_path / "r.txt").write_text("price < 5\n")
    given = ["match", str(tmp_path / "t.parquet"), "--where", str(tmp_path / "r.txt"), "--time-zone", "Europe/Berln"]
    status, said = answer(given, capsys)
    assert status == 2 and "unknown time zone 'Europe/Berln' (did you mean 'Europe/Berlin'?)" in said, said


def test_a_folder_that_is_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"price": [1.0]}), tmp_path / "t.parquet")
    (tmp_path / "r.txt").write_text("price < 5\n")
    given = ["match", str(tmp_path / "t.parquet"), "--where", str(tmp_path / "r.txt"), "--output"]
    status, said = answer([*given, str(tmp_path / "reslts" / "matches")], capsys)
    assert status == 0 and f"thatch: made the folder {tmp_path / 'reslts'}\n" in said
    assert "made the folder" not in answer([*given, str(tmp_path / "reslts" / "others")], capsys)[1]


def test_the_folder_of_a_store_that_is_made_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "thatch.node")
    with StoreLock(tmp_path / "strores" / "B1.thatch"):
        assert f"made the folder {tmp_path / 'strores'}" in caplog.messages


@pytest.mark.parametrize(
    ("name", "text", "options", "reason"),
    [
        ("t.csv", "symbol,price\nA,1\n", ["--delimiter", ";"], "'symbol,price': is the --delimiter ',' meant?"),
        ("t.csv", "symbol;price\nA;1\n", [], "one column only, 'symbol;price': is the --delimiter ';' meant?"),
        ("t.json", '{\n  "price": 1\n}\n', [], "where records span lines, --multiline is needed"),
    ],
)
def test_files_that_are_written_otherwise(
    name: str, text: str, options: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "r.txt").write_text("price < 5\n")
    given = ["match", str(tmp_path / name), "--where", str(tmp_path / "r.txt"), "--space", SPACE, *options]
    status, said = answer([*given, "--engine", "local"], capsys)
    assert status == 2 and reason in said, said


INTERRUPTED = """
import os, signal, sys


class Interrupting:
    def find_spec(self, name, *about):
        if name == "numpy.linalg":
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["match"]
from thatch.cli.main import main

sys.exit(main())
"""


def test_an_interrupt_while_libraries_load_ends_it_quietly() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_public_names_and_no_others_are_listed() -> None:
    assert dir(thatch) == sorted(thatch.__all__)
    with pytest.raises(AttributeError, match="did you mean 'SubscriptionTable'"):
        _ = thatch.SubscriptonTable


def test_explain_names_unknown_keys(capsys: pytest.CaptureFixture[str]) -> None:
    event = json.dumps({"price": 1, "simbol": "A"})
    assert main(["explain", "--space", SPACE, "price < 5", "--event", event]) == 0
    captured = capsys.readouterr()
    assert captured.out == "the event matches\n"
    assert captured.err == "thatch: 'simbol' of the event is ignored: no attribute 'simbol' (did you mean 'symbol'?)\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{bad", "line 1, column 2: a name in double quotes is missing, near 'bad'"),
        ('{"price": 1', "line 1, column 12: it ends too early"),
        ("{'price': 1}", "column 2: a name in double quotes is missing"),
        ('{"price" 1}', "column 10: a colon is missing"),
        ('{"price": 1 "symbol": 2}', "column 13: a comma is missing"),
        ('{"price": A}', "column 11: a value is missing: texts stand in double quotes"),
        ('{"price": 1} 2', "column 14: it goes on after its end"),
        ('{"symbol": "A}', "column 12: a text does not end"),
        ("[1]", "an object is expected, not a list"),
        ("7", "an object is expected, not 7"),
        ("", "it is empty"),
        ("[" * 200_000, "it is nested too deep"),
    ],
)
@pytest.mark.parametrize("is_piped", [False, True])
def test_publish_reads_its_events_before_it_dials(
    text: str, reason: str, is_piped: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_piped and not text:
        pytest.skip("an empty line is no event")
    monkeypatch.setattr("sys.stdin", io.StringIO(text + "\n"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        url = f"ws://127.0.0.1:{listening.getsockname()[1]}"
        status, said = answer(["publish", "--url", url, *([] if is_piped else ['{"price": 1}', text])], capsys)
        with pytest.raises(BlockingIOError):  # nobody came
            listening.accept()
    place = "line 1" if is_piped else "event 2"
    assert status == 2 and f"{place} is not an object in JSON: " in said and reason in said, said
    assert not FOREIGN.search(said)


BROKER = ["broker", "--name", "B1", "--space", SPACE]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--listen", ":47878"], "--listen: every address of this machine is not a loopback address"),
        (["--listen", "nosuchhost:47878"], "--listen: nosuchhost is not a loopback address such as 127.0.0.1"),
        (["--listen", "nosuchhost:47878"], "Add --exposed if only trusted peers"),
        (["--listen", "no..host:47878"], "such as 127.0.0.1 (no host has this name), and there is no access control"),
        (
            ["--listen", "127.0.0.1:7879"],
            "--listen and --overlay (client.port and overlay.port) are the same port, 7879",
        ),
        (["--neighbour", "B2=ws://127.0.0.1:99999"], "neighbour 'B2': 'ws://127.0.0.1:99999': 99999 is not a port"),
        (["--listen", "no..host:47878", "--exposed"], "no host has the name 'no..host'"),
        (["--overlay", "localhost:99999"], "--overlay is a port, a number from 0 to 65535, not 99999"),
        (["--store", "."], "--store .: a folder; give a file such as B1.thatch"),
        (["--port", "47878"], "--listen HOST:PORT: --listen 127.0.0.1:47878"),
        (["--json"], "--json goes with --print-config"),
        (["--space", "."], ". is a folder"),
        (["--space", "price"], "a space stands in quotes"),
    ],
)
def test_flags_of_a_broker_that_cannot_be(flags: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    usual = BROKER[:-2] if "--space" in flags else BROKER
    status, said = answer([*usual, *flags], capsys)
    assert status == 2 and reason in said and "the flags" not in said and not FOREIGN.search(said), said


def test_every_number_of_a_broker_has_a_range() -> None:
    numbers = {
        f"{table}.{field}"
        for table in ("flow", "retention", "timing", "pruning")
        for field, value in msgspec.to_builtins(getattr(Config(name="B1", space=SPACE), table)).items()
        if not isinstance(value, str)
    }
    assert {key for key, _, _ in RANGES} == numbers


def test_a_broker_reads_its_space_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sp.txt").write_text("price double\n")
    status, said = answer([*BROKER[:4], str(tmp_path / "sp.txt"), "--print-config"], capsys)
    assert status == 0 and 'space = "price double' in said
    (tmp_path / "sp.txt").write_text("price\n  number\n")
    status, said = answer([*BROKER[:4], str(tmp_path / "sp.txt"), "--print-config"], capsys)
    assert status == 2 and "sp.txt:2:3: expected a type" in said


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        store = str(tmp_path / "B1.thatch")
        status, said = answer([*BROKER, "--store", store, "--listen", f"127.0.0.1:{port}"], capsys)
    assert status == 2 and f"port {port} is taken: another broker? --listen HOST:PORT" in said
    assert "stopped" not in said and not Path(store).exists()


def test_a_file_that_is_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thatch.node.run.begin", lambda form: None)  # the log of this process stays as it is
    (tmp_path / "junk").write_text("name = 'B1'")
    free = ["--listen", "127.0.0.1:0", "--overlay", "127.0.0.1:0"]
    status, said = answer([*BROKER, "--store", str(tmp_path / "junk"), *free], capsys)
    assert status == 2 and "junk: not a store of Thatch" in said


def test_settings_are_printed_without_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--print-config"]) == 0
    text = capsys.readouterr().out
    assert '# name = "B1"  # needed\n# space = ' in text and "[flow]" in text
    (tmp_path / "b.toml").write_text(text)
    assert main(["broker", str(tmp_path / "b.toml"), "--name", "B7", "--space", SPACE, "--print-config"]) == 0
    assert 'name = "B7"' in capsys.readouterr().out
    assert main(["broker", "--print-config", "--json"]) == 0
    assert "name" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("flags", "missing"),
    [([], "a name and a space"), (["--name", "B1"], "a space"), (["--space", SPACE], "a name")],
)
def test_a_broker_without_a_name_says_what_to_do(
    flags: list[str], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = answer(["broker", *flags], capsys)
    assert status == 2 and f"thatch broker needs {missing}. Give " in said and not FOREIGN.search(said)
    command = next(line for line in said.splitlines() if line.startswith("    thatch broker --"))
    assert all(f"--{each}" in command for each in missing.removeprefix("a ").split(" and a "))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["match"], "match needs EVENTS, --where"),
        (["match", "no.parquet", "--where", "no.txt"], "no.txt"),
        (["reduce", "--where", "r.txt", "--merge", "much"], "--merge: a number is expected, not 'much'"),
        (["simulate", "--seed", "x"], "--seed: a whole number is expected, not 'x'"),
        (["subscribe", "price < 5", "--count", "few"], "--count: a whole number is expected, not 'few'"),
        (["publish", "{}", "--url", "localhost:7878"], "a URL such as ws://127.0.0.1:7878, not 'localhost:7878'"),
        (["publish", "{}", "--url", "ws://127.0.0.1:port"], "a URL such as ws://127.0.0.1:7878"),
        (["covers", "--space", "{", "price < 3"], "not a space in JSON: "),
        (["covers", "--space", '{"attributes": 3 }', "x < 3"], "not a space in JSON: attributes is a list, not 3"),
        (["broker", "no.toml"], "no.toml: no such file"),
        (["broker", "B1"], "B1: no such file; a name is given as --name B1"),
        (["broker", "--listen", "7878"], "HOST:PORT, such as 127.0.0.1:7878, not '7878'"),
        (["match", "README", "--where", "price < 20"], "clauses stand in a file, one a line"),
        (["match", "x.parquet", "--where", "r.txt", "--master", "spork://x"], "--master is local[*]"),
        (["match", "x.parquet", "--where", "r.txt", "--output"], "--output: a value is missing"),
        (["covers", "--space", SPACE, "price", "<", "3"], "'<' is one argument too many: a clause with spaces"),
        (["covers", "--space", "price", "double", "price < 3"], "stands in quotes, and so does a space"),
        (["demo", "--all", "--network"], "--network: cannot be given together with --all"),
        (["match", "x.parquet", "--where", "r.txt", "--o", "y"], "--o is the beginning of several options: --"),
        (["match", "x.parquet", "--where", "r.txt", "--json=yes"], "--json: takes no value"),
        (["match", "x.parquet", "--where"], "--where: a value is missing"),
        ([*COVERS, "price < 20"], "the clauses that may cover it go into --by: --by 'price < 20'"),
        (["publish", "events.csv"], "events.csv is no event: events are JSON, an object a line; CSV is not read here"),
        (["publish", "e.parquet"], "events are JSON, an object a line; Parquet is not read here"),
        (["publish", "{}", "--url", "ws://127.0.0.1:99999"], "99999 is not a port (1 to 65535)"),
    ],
)
def test_mistakes_are_answered_in_our_words(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = answer(arguments, capsys)
    assert status == 2 and reason in said and not FOREIGN.search(said), said


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        ("price number", "(did you mean 'double' or 'decimal(10,2)'?)"),
        ("name varchar(20)", "(did you mean 'string'?)"),
        ("price: double", "write `price double`, without `:`"),
        ("side enum(buy, sell)", "texts stand in quotes: 'buy'"),
        ("price decimal", "write decimal(10,2)"),
        ("day date 2020-01-01..2021-01-01", "dates stand in quotes: '2020-01-01'..'2020-12-31'"),
        ("day date '2020-01-01'..2021-01-01", "dates stand in quotes"),
        ("price double notnull", "write `not null`"),
        ("price double null", "leave it out"),
        ("price double [0..1000]", "a domain stands without brackets: 0..1000"),
        ("price double 0...1000", "a domain has two dots: 0..1000"),
        ("price double not null 1000..0", "the lower bound is above the upper: write 0..1000"),
        ("day date '2021-01-01'..'2020-01-01'", "is above the upper: write '2020-01-01'..'2021-01-01'"),
        ("price decimal(30,2) 9..1", "the lower bound is above the upper: write 1..9"),
        ("string symbol, double price", "column 8 of the space: expected a type, found 'symbol'"),
        ("string symbol, double price", "the name comes before the type: symbol string"),
        ("price double, varchar name", "the name comes before the type: name varchar"),
        ("decimal(10,2) price", "the name comes before the type: price decimal(…)"),
        ("date timestmp", "(did you mean 'timestamp'?)"),
        ("price tinyint 0..1000", "'1000' is beyond tinyint, -128..127"),
        ("detail.state string, detail string", "'detail' cannot have a value and fields, such as 'detail.state'"),
        ('{"price": "double"}', 'Such as {"attributes": [{"name": "price", "type": "double"}]}'),
        ("price", "a space stands in quotes"),
        (".", ". is a folder: give a file in it, or a space like 'price double'"),
    ],
)
def test_a_space_that_is_written_wrong(space: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(["covers", "--space", space, "price < 5"], capsys)
    assert status == 2 and reason in said and not FOREIGN.search(said), said


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("sp.txt", "price double,\n  volume number\n", "sp.txt:2:10: expected a type (did you mean 'double'"),
        ("sp.txt", "price double,\n  volume tinyint 0..300\n", "sp.txt:2:3: attribute 'volume': '300' is beyond"),
        ("sp.json", '{"price": "double"}', "sp.json: not a space in JSON"),
        ("rules.txt", "price < 20\n", "rules.txt:1:7: expected a type"),
        ("rules.txt", "price < 20\n", "Is this a file of rules? They are given with --where"),
    ],
)
def test_an_error_in_the_file_of_a_space_has_its_place(
    name: str, text: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    status, said = answer(["covers", "--space", str(tmp_path / name), "price < 5"], capsys)
    assert status == 2 and place in said, said


@pytest.mark.parametrize("zone", ["+02:00", "UTC+2", "XYZ", ""])
def test_a_time_zone_is_a_name(zone: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(["covers", "--space", SPACE, f"--time-zone={zone}", "price < 5"], capsys)
    assert status == 2 and "a time zone is a name such as Europe/Berlin" in said


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ('{"price": null}', "attribute 'price': NULL is refused"),
        ('{"price": true}', "attribute 'price': true is not a double"),
        ('{"price": [5.5]}', "attribute 'price': [5.5] is not a double"),
        ('{"price": NaN}', 'NaN is no JSON: write it as a string, "NaN"'),
        ("t.json", "--event is not an object in JSON: give the object itself, such as '{\"price\": 5}', not 't.json'"),
        ("@t.json", "give the object itself"),
        ("price=5", "give the object itself"),
    ],
)
def test_an_event_that_is_written_wrong(event: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(["explain", "--space", SPACE, "price < 5", "--event", event], capsys)
    assert status == 2 and reason in said and not FOREIGN.search(said), said


def test_a_misspelt_attribute_of_an_event_is_said_first(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(["explain", "--space", SPACE, "price < 5", "--event", '{"prise": 5}'], capsys)
    assert status == 2
    assert "no attribute 'prise' (did you mean 'price'?)" in said.splitlines()[0]


@pytest.mark.parametrize("count", ["0", "-1"])
def test_count_is_at_least_one(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(["subscribe", "price < 5", f"--count={count}"], capsys)
    assert status == 2 and f"--count is at least 1, not {count}" in said


def test_publish_with_a_file_for_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(["publish", "../t.json"], capsys)
    assert status == 2 and "thatch publish < ../t.json" in said


def test_what_is_not_utf_8_on_standard_input_has_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'\n{"price": "\xff"}\n'), "utf-8"))
    status, said = answer(["publish"], capsys)
    assert status == 2 and "line 2: not UTF-8 text" in said


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(["help", "publish"], capsys)
    assert status == 0 and "usage: thatch publish" in said


def test_what_a_clause_may_say_is_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = answer(["help", "clauses"], capsys)
    assert status == 0 and "BETWEEN 10 AND 20" in said and "not supported" in said


@pytest.mark.parametrize(
    ("clause", "note"),
    [
        ("side = 'BUY'", "valid, but no event can match it: 'BUY' is no value of side: 'buy', 'sell' (did you mean"),
        ("price BETWEEN 20 AND 10", "valid, but no event can match it: 20 is above 10"),
        ("price < 2000", "valid, and it matches every event"),
    ],
)
def test_validate_says_what_is_odd_about_a_valid_clause(
    clause: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = answer(["validate", "--space", SPACE, clause], capsys)
    assert status == 0 and note in said


def test_files_that_are_misspelt_or_of_another_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("rules.txt", "price < 5\n"), ("bad.parquet", "text"), ("r.yaml", "- id: a\n  wher: TRUE\n")):
        (tmp_path / name).write_text(text)
    rules, bad = str(tmp_path / "rules.txt"), str(tmp_path / "bad.parquet")
    pq.write_table(pa.table({"price": [1.0]}), tmp_path / "t.parquet")
    good = str(tmp_path / "t.parquet")
    for arguments, reason in (
        ([good, "--where", rules[:-1]], f"(did you mean {rules!r}?)"),
        ([str(tmp_path / "trade*.prq"), "--where", rules], f"no file matches {tmp_path}/trade*.prq"),
        ([bad, "--where", rules], "cannot be read as Parquet: it is another kind of file"),
        ([good, "--where", str(tmp_path / "r.yaml")], "(is `wher` meant?)"),
        ([rules, "--where", good], "has no column 'id'; its columns are 'price'. Rules have an id and a clause"),
    ):
        status, said = answer(["match", *arguments], capsys)
        assert status == 2 and reason in said and not FOREIGN.search(said), said


def test_a_store_that_cannot_be_used_is_said_without_sqlite(tmp_path: Path) -> None:
    def opened(path: Path) -> Node:
        return Node(Config(name="B1", space=SPACE, store=str(path)))

    with pytest.raises(sqlite3.OperationalError) as raw:
        sqlite3.connect(tmp_path / "none" / "B1.thatch")
    assert str(unusable(Path("B1.thatch"), raw.value)) == (
        "store B1.thatch: the file cannot be opened: does its folder exist, and may this user write there?"
    )
    node = opened(tmp_path / "B1.thatch")
    node.store.stop()
    data = bytearray((tmp_path / "B1.thatch").read_bytes())
    data[4096:4300] = b"\xff" * 204
    (tmp_path / "B1.thatch").write_bytes(data)
    with pytest.raises(StoreError, match=r"damaged.*restore a backup") as caught:
        opened(tmp_path / "B1.thatch")
    assert not FOREIGN.search(str(caught.value))


def test_a_space_in_json_is_refused_in_our_words() -> None:
    with pytest.raises(SpaceError) as caught:
        thatch.Space.from_json('{"attributes": [{"name": "a", "typ": "int"}]}')
    assert str(caught.value) == (
        "not a space in JSON: no setting 'attributes[0].typ' (did you mean 'attributes[0].type'?)"
    )


def test_a_shell_completes_commands_options_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert "#compdef thatch" in capsys.readouterr().out
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    asked = [["thatch", "ma"], ["thatch", "match", "--wh"], ["thatch", "match", "--engine", "sp"]]
    name = re.findall(r"^complete .*-F (\w+) thatch", script, re.MULTILINE)[0]
    for words in asked:
        script += f"\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; COMPREPLY=(); {name}\n"
        script += 'echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20)
    assert done.stdout.split("\n")[:3] == ["match", "--where", "spark"], done.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert styled("x", "bold", io.StringIO()) == "x"
    assert styled("x", "bold", Terminal()) == "\033[1mx\033[0m"
    assert "\033" not in answer(["covers", "--space", SPACE, "prise < 3"], capsys)[1]
    seen = Terminal()
    monkeypatch.setattr("sys.stderr", seen)
    main(["covers", "--space", SPACE, "prise < 3"])
    assert "\033[31mthatch:\033[0m " in seen.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("x", "bold", Terminal()) == "x"


@pytest.mark.parametrize(
    ("module", "work", "advice"),
    [
        ("aiohttp", "from thatch.cli.main import main; sys.exit(main(['publish', '{}']))", "aiohttp.*thatch.node"),
        ("aiohttp", "import thatch.client", "aiohttp, which is not installed: pip install 'thatch.client"),
        ("pyspark", "import thatch.spark", "pyspark, which is not installed: pip install 'thatch.spark"),
    ],
)
def test_a_missing_extra_is_named(module: str, work: str, advice: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; {work}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.returncode and re.search(f"this needs {advice}", done.stderr.splitlines()[-1]), done.stderr


def test_setup_goes_on_without_java() -> None:
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "scripts" / "check-tools"), sys.executable],
        env={"PATH": "/nowhere"}, capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert done.returncode == 0 and "no Java found, which Spark needs" in done.stderr
