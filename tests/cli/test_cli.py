"""The command line: what it prints, and its exit status: 0, 1 if the answer is no, 2 for bad input."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.paths import ROOT
from thatch.cli.demo_earthquakes import SUBSCRIPTIONS, earthquakes
from thatch.cli.main import main

SPACE = "price double not null 0..1000, symbol string"


def test_validate_points_at_every_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "clauses.txt"
    file.write_text("# alerts\nprice < 20\n\nprize < 20\nsymbol LIKE '%x'\nprice > 5000\n", encoding="utf-8")
    assert main(["validate", "--space", SPACE, "--file", str(file)]) == 1
    out = capsys.readouterr().out
    assert f"{file}:4:1: no attribute 'prize' (did you mean 'price'?)\n    prize < 20\n    ^" in out
    assert f"{file}:5:13: attribute 'symbol': '%x' is not a constant prefix" in out
    assert f"{file}:6: valid, but no event can match it" in out
    assert out.endswith("2 of 4 clauses are valid\n")


def test_validate_counts_refused_rules_by_construct(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clauses = [
        "upper(symbol) = 'A'",
        "upper(symbol) = 'B'",
        "price + 1 < 5",
        "price * 2 < 5",
        "price = symbol",
        "prise > 1",
    ]
    clauses += [
        "price IN (SELECT 1)",
        "price = 'x'",
        "symbol LIKE '%x'",
        "price <",
        "CASE WHEN price THEN 1 END",
        "TRUE",
    ]
    rules = "".join(f"- id: r{number}\n  where: {json.dumps(clause)}\n" for number, clause in enumerate(clauses))
    (tmp_path / "rules.yaml").write_text(f"{rules}- id: none\n", encoding="utf-8")
    assert main(["validate", "--space", SPACE, "--file", str(tmp_path / "rules.yaml"), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["valid"] == 1 and result["refused_by_construct"] == {
        "the function UPPER": 2,
        "arithmetic": 2,
        "rule without an id of its own or without a clause": 1,
        "a column compared with a column": 1,
        "unknown attribute 'prise'": 1,
        "a sub-query": 1,
        "literal that does not fit": 1,
        "LIKE with more than a prefix": 1,
        "malformed clause": 1,
        "CASE": 1,
    }
    assert main(["validate", "--space", SPACE, "--file", str(tmp_path / "rules.yaml")]) == 1
    out = capsys.readouterr().out
    assert f"{tmp_path}/rules.yaml:3, rule r1, line 1, column 1: the function UPPER is not supported" in out
    assert "refused:\n  2  the function UPPER\n  2  arithmetic\n" in out
    assert out.endswith("1 of 13 clauses are valid\n")


def test_validate_takes_the_columns_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"price": [1.0], "odd": [[1]]}), tmp_path / "events.parquet")
    assert main(["validate", "--events", str(tmp_path / "events.parquet"), "price < 5"]) == 0
    assert main(["validate", "--events", str(tmp_path / "events.parquet"), "prise < 5"]) == 1
    assert "did you mean 'price'?" in capsys.readouterr().out
    assert main(["validate", "price < 5"]) == 2
    assert "give either --space, or --events FILE" in capsys.readouterr().err


def test_validate_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--json", "--space", SPACE, "price < 20", "b AND\n price <"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert [each["valid"] for each in result["clauses"]] == [True, False]
    assert result["clauses"][0]["sql"] == "price < 20.0D"
    assert result["clauses"][1]["line"] == 2


def test_a_space_can_be_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from thatch import Space

    text, as_json = tmp_path / "space.txt", tmp_path / "space.json"
    text.write_text(SPACE)
    as_json.write_text(Space.parse(SPACE).to_json())
    for file in (text, as_json):
        assert main(["validate", "--space", str(file), "price < 20"]) == 0
        assert capsys.readouterr().out == "valid: price < 20.0D\n1 of 1 clauses are valid\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--space", "price dbl", "price < 1"], "expected a type"),
        (["--space", SPACE], "nothing to validate"),
        (["--space", SPACE, "--file", "/does/not/exist"], "no such file"),
        (["--space", "day date", "--time-zone", "Mars/Base", "day = '2020'"], "unknown time zone"),
    ],
)
def test_bad_input_is_status_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out


def test_covers_names_who_proves_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["covers", "--space", SPACE, "--by", "price < 20", "--by", "symbol = 'A'", "--by", "price >= 20"]
    assert main([*asked, "price BETWEEN 10 AND 50"]) == 0
    assert capsys.readouterr().out == "covered by the union of:\n  clause 1: price < 20\n  clause 3: price >= 20\n"
    assert main([*asked, "--json", "price < 5 AND symbol = 'B'"]) == 0
    proof = json.loads(capsys.readouterr().out)
    assert proof == {"covered": True, "certificate": [{"place": "clause 1", "clause": "price < 20"}]}


def test_covers_shows_an_event_that_nobody_else_wants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "members.txt"
    file.write_text("price < 20\n# dear ones\nprice > 30\n")
    asked = ["covers", "--space", "price int not null 0..100", "--file", str(file)]
    assert main([*asked, "--json", "price < 50"]) == 1
    witness = json.loads(capsys.readouterr().out)["witness"]["price"]
    assert 20 <= witness <= 30
    assert main([*asked, "price < 50"]) == 1
    assert f"  price = {witness}\n" in capsys.readouterr().out
    assert main([*asked, "--cover", "pairwise", "price < 50"]) == 1
    assert "not proven: no single member covers it" in capsys.readouterr().out
    assert main([*asked, "--cover", "magic", "price < 50"]) == 2
    assert "no cover engine 'magic'; there are" in capsys.readouterr().err
    assert main([*asked, "prize < 50"]) == 2
    assert "the clause: line 1, column 1: no attribute 'prize'" in capsys.readouterr().err


TYPES = "price double not null 0..1000, symbol string, cost decimal(6,2), day date, at timestamp, open bool, n int"


def test_covers_says_when_it_only_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["covers", "--space", "price int not null 0..100", "--by", "price < 60", "--by", "price >= 40"]
    asked += ["--cover", "montecarlo", "price BETWEEN 20 AND 80"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "likely covered by the union of:" in said and "nobody guarantees" in said
    assert main([*asked, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["covered"] and result["trials_run"] == result["trials_asked"] and result["claimed_error"] <= 1e-6
    assert main([*asked[:-1], "price = 30", "--json"]) == 0
    assert "claimed_error" not in json.loads(capsys.readouterr().out)  # one covers it, for certain


def test_explain_says_who_covers_a_clause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "others.txt"
    file.write_text("# alerts\nprice >= 20\nprice >= 30\n")
    asked = ["explain", "--space", SPACE, "--by", "price < 20", "--by", "price > 1000", "--file", str(file)]
    assert main([*asked, "price BETWEEN 10 AND 50"]) == 0
    out = capsys.readouterr().out
    assert out == f"passive: covered by the union of:\n  clause 1: price < 20\n  {file}:2: price >= 20\n"
    assert main([*asked, "--json", "price > 40"]) == 0  # {file}:3 is passive itself: it proves nothing
    result = json.loads(capsys.readouterr().out)
    proof = [{"place": f"{file}:2", "clause": "price >= 20"}]
    assert result == {"status": "passive", "covered": True, "certificate": proof}
    assert main([*asked, "price < 0"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "passive: covered by:\n  nothing: no event can match it\n" and not captured.err


def test_explain_shows_a_witness_that_it_can_read(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["explain", "--space", TYPES, "--by", "price < 20", "--by", "at IS NULL OR day IS NULL OR cost IS NULL"]
    clause = "price < 50 AND day > DATE'2020-02-28'"
    assert main([*asked, "--json", clause]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["status"] == "active" and not result["covered"]
    assert 20 <= result["witness"]["price"] < 50
    assert main([*asked, clause]) == 0
    out = capsys.readouterr().out
    assert out.startswith("active: not covered: this event matches the clause and none of the others\n  price = ")
    assert f"\n  day = {result['witness']['day']}\n" in out
    assert main([*asked, clause, "--event", json.dumps(result["witness"])]) == 0
    assert capsys.readouterr().out == "the event matches\n"


def test_explain_names_the_conditions_that_fail(capsys: pytest.CaptureFixture[str]) -> None:
    clause = "price < 20 AND cost = 1.5 AND day = DATE'2020-02-29' AND at >= TIMESTAMP'2020-02-29 12:00:00' AND open"
    asked = ["explain", "--space", TYPES, clause, "--event"]
    good = {"PRICE": 12, "cost": 1.50, "day": "2020-02-29", "at": "2020-02-29 13:00:00+01:00", "open": True, "new": [1]}
    assert main([*asked, json.dumps(good)]) == 0
    assert capsys.readouterr().out == "the event matches\n"
    assert main([*asked, json.dumps(good | {"PRICE": 20.5, "at": "2020-02-29 11:59:59.5"})]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "the event does not match:",
        "  price < 20.0D fails: price is 20.5",
        "  at >= TIMESTAMP'2020-02-29 12:00:00Z' fails: at is 2020-02-29 11:59:59.500000+00:00",
    ]
    assert main([*asked, json.dumps(good | {"cost": "1.51", "day": None}), "--json"]) == 1
    failures = [
        {"condition": "cost = 1.50", "values": {"cost": "1.51"}},
        {"condition": "day = DATE'2020-02-29'", "values": {"day": None}},
    ]
    assert json.loads(capsys.readouterr().out) == {"matches": False, "failures": failures}


@pytest.mark.parametrize(
    ("clause", "event", "lines"),
    [
        ("price < 5 AND n = 1 OR price > 9", '{"price": 7}', ["none of 2 alternatives", "  price > 9.0D fails"]),
        ("price < 0", '{"price": 7}', ["the event does not match: no event can match the clause"]),
        ("n = 9007199254740993", '{"price": 1, "n": 9007199254740992}', ["the event does not match:", "  n = "]),
        ("within(1, price, 3, n, 4)", '{"price": 3.5, "n": 5}', ["the event does not match:", "  within(1.0D, price"]),
    ],
)
def test_explain_what_comes_nearest(
    clause: str, event: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--space", TYPES, clause, "--event", event]) == 1
    out = capsys.readouterr().out.splitlines()
    assert len(out) == len(lines) and all(each.startswith(line) for each, line in zip(out, lines, strict=True))


def test_explain_reads_times_in_the_zone_of_the_space(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "explain",
        "--space",
        "at timestamp",
        "--time-zone",
        "Europe/Berlin",
        "at = TIMESTAMP'2020-07-01 12:00:00'",
    ]
    assert main([*asked, "--event", '{"at": "2020-07-01 12:00:00"}']) == 0
    assert main([*asked, "--event", '{"at": "2020-07-01 10:00:00Z"}']) == 0
    assert main([*asked, "--event", '{"at": "2020-07-01 12:00:00Z"}']) == 1
    capsys.readouterr()


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ('{"price": 2000}', "attribute 'price': 2000 is outside the domain 0.0..1000.0 of double"),
        ('{"symbol": "A"}', "the attribute is not null and the value is missing"),
        ('{"price": 1, "Price": 2}', "names the attribute a second time"),
        ('{"price": "NaN"}', "outside the domain"),
        ('{"price": 1e400}', "is not a float"),
        ('{"price": 1, "symbol": 3}', "attribute 'symbol': 3 is not a string"),
        ('{"price": 1, "n": "3"}', "attribute 'n': '3' is not an int"),
        ('{"price": 1, "cost": 1.234}', "more than the 2 decimal places"),
        ('{"price": 1, "at": "yesterday"}', "attribute 'at': 'yesterday' is not a timestamp like"),
        ('{"price": ', "--event is not an object in JSON: line 1, column 11: it ends too early"),
        ("[1]", "--event is not an object in JSON: an object is expected, not a list"),
        ("\udcff", "--event is not an object in JSON"),
    ],
)
def test_explain_refuses_a_bad_event(event: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--space", TYPES, "price < 20", "--event", event]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out


def test_explain_refuses_a_bad_clause(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--space", SPACE, "prize < 50"]) == 2
    assert "the clause: line 1, column 1: no attribute 'prize'" in capsys.readouterr().err
    assert main(["explain", "--space", SPACE, "--by", "price < 5", "--by", "prize < 50", "price < 1"]) == 2
    assert "clause 2: line 1, column 1: no attribute 'prize'" in capsys.readouterr().err


def test_the_commands_in_the_docs_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"^    \$ thatch ((?:.*\\\n)*.*)\n((?:    .*\n)*)", text, re.MULTILINE)
    assert {command.split()[0] for command, _ in blocks} == {"validate", "covers", "explain", "plan"}
    for command, printed in blocks:
        main(shlex.split(command.replace("\\\n", " ")))
        assert capsys.readouterr().out == textwrap.dedent(printed)


def test_demo_says_who_gets_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--earthquakes"]) == 0
    out = capsys.readouterr().out
    assert "1,707 earthquakes" in out and all(name in out for name in SUBSCRIPTIONS)
    assert main(["demo", "--earthquakes", "--json"]) == 0
    rows = {row["subscription"]: row for row in json.loads(capsys.readouterr().out)["subscriptions"]}
    events = earthquakes()
    assert rows["everything"]["events"] == len(events)
    assert rows["california"]["events"] == sum(e["region"] == "CA" and 2 <= e["magnitude"] <= 10 for e in events)
    assert rows["deep-earth"]["events"] == sum(e["depth"] is not None and e["depth"] > 150 for e in events)
    assert rows["tsunami-centre"]["events"] == sum(
        e["tsunami"] or (e["magnitude"] >= 6 and e["depth"] is not None and e["depth"] < 70) for e in events
    )
