"""Files of rules: every format gives the same rules, and what is wrong is named by file and line."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import thatch
from thatch import CallerError, Space
from thatch.local import documents
from thatch.local.files import Format
from thatch.local.rule_files import rules_in

TEXT_KINDS = ("csv", "json", "jsonl.gz", "yaml", "yml", "toml", "map.yaml", "map.toml")
KINDS = (*TEXT_KINDS, "semicolons.csv", "document.json", "parquet")
TEXTS = ["price < 5", "symbol = 'a\"b'", "symbol LIKE '50\\\\%'", "price IN (1, 2)\nAND symbol = 'é'", "TRUE", "a > 9"]
OWNERS = ["ann", "007", "no", "", "1.5", "null", "a: b", "[x]", "- x", "{y", "ü"]


def written(rules: list[dict[str, Any]], kind: str, folder: Path) -> Path:
    path = folder / f"rules.{kind}"
    table = pa.Table.from_pylist(rules)
    if kind.endswith("csv"):
        by = ";" if kind == "semicolons.csv" else ","
        lines = [by.join(table.schema.names)]
        lines += [by.join('"' + str(value).replace('"', '""') + '"' for value in rule.values()) for rule in rules]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif kind == "json":
        path.write_text("".join(json.dumps(rule) + "\n\n" for rule in rules), encoding="utf-8")
    elif kind == "jsonl.gz":
        with pa.output_stream(path, compression="gzip") as stream:
            stream.write("".join(json.dumps(rule) + "\n" for rule in rules).encode())
    elif kind == "document.json":
        path.write_text(json.dumps({"rules": rules}, indent=1), encoding="utf-8")
    elif kind in ("yaml", "yml"):
        path.write_text(yaml.safe_dump(rules if kind == "yml" else {"version": 2, "rules": rules}), encoding="utf-8")
    elif kind == "map.yaml":
        named = {rule["id"]: {key: value for key, value in rule.items() if key != "id"} for rule in rules}
        path.write_text(yaml.safe_dump(named, allow_unicode=True, sort_keys=False), encoding="utf-8")
    elif kind in ("toml", "map.toml"):
        text = ""
        for rule in rules:
            text += "[[rules]]\n" if kind == "toml" else f"[rules.{json.dumps(str(rule['id']))}]\n"
            own = {key: value for key, value in rule.items() if key != "id" or kind == "toml"}
            text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in own.items())
        path.write_text(text, encoding="utf-8")
    else:
        pq.write_table(table, path)
    return path


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ids", ["integers", "texts"])
def test_every_format_has_the_same_rules(seed: int, ids: str, tmp_path: Path) -> None:
    random = Random(seed)
    rules: list[dict[str, Any]] = []
    for number in random.sample(range(-20, 10**12), 5):
        id = number if ids == "integers" else random.choice(["r", "0", "a b", "é", "no", "x.y"]) + f"-{number}"
        rules.append({"id": id, "where": random.choice(TEXTS), "owner": random.choice(OWNERS[:1] + OWNERS)})
    for kind in KINDS:
        format = Format(None, ";" if kind == "semicolons.csv" else ",")
        found = rules_in(str(written(rules, kind, tmp_path)), format)
        assert not found.unread
        assert found.table.select(["id", "where", "owner"]).to_pylist() == rules, kind


def test_integers_stay_integers_and_what_is_no_integer_stays_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,where\n1,TRUE\n-20,TRUE\n0,TRUE\n")
    assert thatch.read_rules(tmp_path / "a.csv").column("id").to_pylist() == [1, -20, 0]
    for odd in ("007", "+1", "1.0", "-0", "99999999999999999999", "1 "):
        (tmp_path / "b.csv").write_text(f"id,where\n1,TRUE\n{odd},TRUE\n")
        (tmp_path / "b.yaml").write_text(f"- {{id: 1, where: 'TRUE'}}\n- {{id: '{odd}', where: 'TRUE'}}\n")
        for name in ("b.csv", "b.yaml"):
            assert thatch.read_rules(tmp_path / name).column("id").to_pylist() == ["1", odd]
    (tmp_path / "c.yaml").write_text("- {id: 0o17, where: a}\n- {id: yes, where: a}\n- {id: 2020-01-01, where: a}\n")
    assert thatch.read_rules(tmp_path / "c.yaml").column("id").to_pylist() == ["0o17", "yes", "2020-01-01"]


def test_further_columns_and_other_names(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "defaults: &d {owner: ann, level: 3}\nrules:\n- {<<: *d, name: x, clause: price < 5, level: 4}\n"
        "- {name: y, condition: price > 9, tags: [a, b], on: true, note: ~}\n- price = 7\n"
    )
    rows = thatch.read_rules(tmp_path / "a.yaml").to_pylist()
    assert [(row["id"], row["where"]) for row in rows] == [
        ("x", "price < 5"),
        ("y", "price > 9"),
        (f"{tmp_path}/a.yaml:5", "price = 7"),
    ]
    assert [row["owner"] for row in rows] == ["ann", None, None] and [row["level"] for row in rows] == [4, None, None]
    assert rows[1]["tags"] == ["a", "b"] and rows[1]["on"] is True and rows[1]["note"] is None


WRONG = {
    "a.yaml": ("- {id: a, where: b}\n- {id: c}\n- 5\n- {where: x}\n- [1]\n", [2, 4, 5]),
    "a.toml": ('[[rules]]\nid = "a"\nwhere = "b"\n\n[[rules]]\nid = "c"\n', [5]),
    "a.csv": ('id,where\na,b\nc\n"d","e\nf"\n,g\n\nh,i,j\n', [3, 6, 8]),
    "a.json": ('{"id": "a", "where": "b"}\n\n{"id": 1\n{"where": "c"}\n[{"id": "d", "where": "e"}]\n', [3, 4]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_is_named_by_its_line(name: str, tmp_path: Path) -> None:
    text, lines = WRONG[name]
    path = tmp_path / name
    path.write_text(text)
    found = rules_in(str(path), Format())
    places = {each.place for each in found.unread}
    assert places == {f"{path}:{line}" for line in lines}
    with pytest.raises(CallerError, match=rf"(?s){name}:{lines[0]}: "):
        thatch.read_rules(path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "semicolons.csv"])
def test_a_wrong_clause_is_named_by_its_line(kind: str, tmp_path: Path) -> None:
    rules = [{"id": f"r{number}", "where": "price < 5"} for number in range(5)]
    rules[3]["where"] = "prise < 5"
    path = written(rules, kind, tmp_path)
    place = {"parquet": f"{path}, row 3", "document.json": f"{path}, rule 4", "jsonl.gz": f"{path}:4"}.get(kind)
    if place is None:  # the line that the rule begins in
        lines = path.read_text().split("\n")
        wrong = next(number for number, line in enumerate(lines, 1) if "prise" in line)
        starts = [number for number, line in enumerate(lines, 1) if line.startswith(("- ", "[", "r", "{", '"'))]
        place = f"{path}:{max(number for number in starts if number <= wrong)}"
    with pytest.raises(CallerError) as refused:
        thatch.match(pa.table({"price": [1.0]}), path)
    assert str(refused.value).startswith(f"{place}: subscription 'r3', line 1, column 1: no attribute 'prise'")


def laughs() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    return "\n".join(lines)


HOSTILE = {
    "laughs": laughs(),
    "deep": "[" * 100_000,
    "deep mapping": "\n".join(" " * n + "a:" for n in range(60)),
    "twice": "x: price < 5\ny: price > 5\nx: price = 5\n",
    "loop": "a: &a [*a]\n",
    "tab": "a:\n\t- b\n",
    "not text": "a: \x00\n",
    "a number": "5\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "VALUES_MAX", 100_000)
    path = tmp_path / "hostile.yaml"
    path.write_text(HOSTILE[name])
    with pytest.raises(CallerError, match=r"hostile\.yaml"):
        thatch.read_rules(path)


def test_hostile_toml_and_json_are_refused(tmp_path: Path) -> None:
    hostile = {"a.toml": "a = " + "[" * 100_000, "b.toml": "a = 1\na = 2", "c.json": '{\n"a": "x", "a": "y"}'}
    for name, text in hostile.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(CallerError, match=name.replace(".", r"\.")):
            thatch.read_rules(tmp_path / name)
    (tmp_path / "d.json").write_text("[\n" + "[" * 100_000)
    with pytest.raises(CallerError, match=r"d\.json"):
        thatch.read_rules(tmp_path / "d.json")
    (tmp_path / "e.yaml").write_bytes(b"a: \xff")
    with pytest.raises(CallerError, match=r"e\.yaml: not UTF-8 text"):
        thatch.read_rules(tmp_path / "e.yaml")


def test_an_id_that_is_given_twice_names_both_places(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,where\na,TRUE\nb,TRUE\na,FALSE\n")
    both = r"two subscriptions have the id 'a', in .*a\.csv:2 and .*a\.csv:4: an id is given once"
    with pytest.raises(CallerError, match=both):
        thatch.match(pa.table({"n": [1]}), tmp_path / "a.csv", Space.parse("n int"))


LOST = {
    "two containers": "rules:\n- p > 1\nalerts:\n- p > 2\n",
    "a container beside rules": "a: p > 1\nb: p > 2\ndeep:\n  c: p > 3\n",
    "without blanks": "a: p>1\ndeep:\n  c: p > 3\n",
    "a list beside a rule": "a: p > 1\ntags: [p > 3]\n",
    "a rule called rules": "rules:\n  where: p > 1\nother:\n  where: p > 2\n",
    "two clauses": "- id: a\n  where: p > 1\n  Where: p > 2\n",
}


@pytest.mark.parametrize("name", LOST)
def test_no_rule_is_dropped(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(LOST[name])
    if name == "a rule called rules":
        assert thatch.read_rules(path).column("id").to_pylist() == ["rules", "other"]
    else:
        with pytest.raises(CallerError, match=r"rules\.yaml.*(they may be under several|has a key twice)"):
            thatch.read_rules(path)


def test_bounds_in_documents(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: {low_p: 1.0000000000000000000000001, high_p: 2, owner: ann}\n")
    found = thatch.read_rules(tmp_path / "a.yaml").to_pylist()
    assert found == [{"id": "a", "low_p": "1.0000000000000000000000001", "high_p": "2", "owner": "ann"}]
    events = pa.table({"p": pa.array([1, 2, 3], pa.decimal128(38, 25))})
    assert thatch.match(events, tmp_path / "a.yaml").column("p").to_pylist() == [2]
    (tmp_path / "b.csv").write_text("id,low_price,high_prise\na,1,2\n")
    with pytest.raises(CallerError, match="column 'high_prise' looks like bounds of 'price'"):
        thatch.match(pa.table({"price": [1.0]}), tmp_path / "b.csv")


ONE = {
    "a.json": '{"cheap": "p < 1", "dear": "p > 2"}',
    "b.json": '{"rules": [{"id": "cheap", "where": "p < 1"}, {"id": "dear", "where": "p > 2"}]}',
    "c.json": '[{"id": "cheap", "where": "p < 1"}, {"id": "dear", "where": "p > 2"}]',
    "d.json": '{"id": "cheap", "where": "p < 1", "n": 1}\n{"id": "dear", "where": "p > 2", "n": "x"}\n',
    "e.txt": "\ufeff# head\np < 1\np > 2\n",
    "f.toml": 'cheap = "p < 1"\ndear = """\np > 2"""\n',
    "g.yaml": "--- &a\nid: cheap\nwhere: p < 1\n---\nid: dear\nwhere: p > 2\n",
}


@pytest.mark.parametrize("name", ONE)
def test_documents_as_programs_write_them(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(ONE[name], encoding="utf-8")
    found = thatch.read_rules(tmp_path / name)
    assert [clause.strip() for clause in found.column("where").to_pylist()] == ["p < 1", "p > 2"]


def test_odd_values(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"id": 1e400, "where": "p"}, {"id": 0.1000000000000000055, "where": "p"}]')
    assert thatch.read_rules(tmp_path / "a.json").column("id").to_pylist() == ["1e400", "0.1000000000000000055"]
    (tmp_path / "b.json").write_text('[{"id": "\\ud800", "where": "p"}]')
    with pytest.raises(CallerError, match=r"b\.json, rule 1: is not valid Unicode"):
        thatch.read_rules(tmp_path / "b.json")
    (tmp_path / "c.json").write_text('{"id": 1, "where": "p"}\n{"id": 18446744073709551616, "where": "p"}\n')
    assert len(thatch.read_rules(tmp_path / "c.json")) == 2
    (tmp_path / "d.json").write_text("{" + ", ".join(f'"k{n}": "p"' for n in range(20_000)) + ', "k0": "p"}')
    with pytest.raises(CallerError, match="the key 'k0' is given twice"):
        thatch.read_rules(tmp_path / "d.json")
    wide = "p IN (" + ", ".join(map(str, range(30_000))) + ")"
    (tmp_path / "e.csv").write_text(f'id,where\na,"{wide}"\nb,q > 1\n')
    with pytest.raises(CallerError, match=r"e\.csv:3: subscription 'b'"):
        thatch.match(pa.table({"p": [1]}), tmp_path / "e.csv")
    (tmp_path / "f.yaml").write_text("")
    assert len(thatch.read_rules(tmp_path / "f.yaml")) == 0
