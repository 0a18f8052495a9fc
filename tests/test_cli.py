"""The command line: what it prints, and its exit status: 0, 1 if the answer is no, 2 for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thatch.cli import main
from thatch.demo import SUBSCRIPTIONS, earthquakes

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
        (["--space", SPACE, "--file", "/does/not/exist"], "No such file"),
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


def test_demo_tells_who_gets_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "1,707 earthquakes" in out and all(name in out for name in SUBSCRIPTIONS)
    assert main(["demo", "--json"]) == 0
    rows = {row["subscription"]: row for row in json.loads(capsys.readouterr().out)["subscriptions"]}
    events = earthquakes()
    assert rows["everything"]["events"] == len(events)
    assert rows["california"]["events"] == sum(e["region"] == "CA" and 2 <= e["magnitude"] <= 10 for e in events)
    assert rows["deep-earth"]["events"] == sum(e["depth"] is not None and e["depth"] > 150 for e in events)
    assert rows["tsunami-centre"]["events"] == sum(
        e["tsunami"] or (e["magnitude"] >= 6 and e["depth"] is not None and e["depth"] < 70) for e in events
    )
