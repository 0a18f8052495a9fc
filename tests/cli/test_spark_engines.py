"""One contract for both engines: over random clauses, files and mistakes, the commands give the same rows, leave out
the same rows for the same reasons, and say the same."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.clause_rows import COLUMNS, SPACE, make_rows, make_table
from helpers.clauses import ClauseWriter
from helpers.spark_oracles import SEED
from thatch.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

ROWS, RULES = 120, 30
GARBAGE = ["x", "", " ", "1e999", "--5", "2020-02-30", "NaN", "9" * 40, f"0.{'0' * 39}1", "tru"]
WRONG = ["upper(name) = 'A'", "nothing = 5", "price <", "count = 'x' AND", "name LIKE '%a'", ""]
CONTROL = str.maketrans(dict.fromkeys(map(chr, [*range(32), 127, 133, 8232, 8233]), "~"))


class Case:
    """Files of events and rules, made of a seed, and the commands over them."""

    def __init__(self, seed: int, kind: str, folder: Path, capsys: Any) -> None:
        self.random, self.folder, self.capsys = Random(seed), folder, capsys
        numbers = [column for column in COLUMNS if column.is_number]
        others = [column for column in COLUMNS if not column.is_number]
        self.columns = self.random.sample(numbers, 4) + self.random.sample(others, 4)
        names = [column.name for column in self.columns]
        declared = re.split(r", (?=\w+ (?!'))", SPACE)
        self.space = ", ".join(each for each in declared if each.split()[0] in names)
        rows = make_rows(self.random, ROWS)
        for column in self.columns if kind == "parquet" else ():
            for value in column.beyond:
                self.random.choice(rows)[column.name] = value
        self.table = make_table(rows).select(names).append_column("row", pa.array(range(ROWS)))
        self.events = self._written(kind)
        self.rules = self._rules()

    def _written(self, kind: str) -> str:
        path = self.folder / f"events.{kind}"
        if kind == "parquet":
            pq.write_table(self.table, path)
            return str(path)
        lines = [",".join(self.table.schema.names)] if kind == "csv" else []
        for row in self.table.to_pylist():
            texts = {name: None if value is None else _text(value) for name, value in row.items()}
            if self.random.random() < 0.2:
                texts[self.random.choice(self.table.schema.names[:-1])] = self.random.choice(GARBAGE)
            if kind == "csv":
                lines.append(",".join("" if text is None else _quoted(text) for text in texts.values()))
            else:
                lines.append(json.dumps({name: text for name, text in texts.items() if text is not None}))
            if self.random.random() < 0.03:
                lines.append('1,2,"' if kind == "csv" else '{"row": ')
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    def _rules(self) -> str:
        writer, rules = ClauseWriter(self.random, self.columns), []
        for number in range(RULES):
            clause = writer.clause().ours if self.random.random() < 0.85 else self.random.choice(WRONG)
            rules.append({"id": number, "where": clause, "owner": self.random.choice(["ann", "bob"])})
        path = self.folder / "rules.json"
        path.write_text("".join(json.dumps(rule) + "\n" for rule in rules), encoding="utf-8")
        return str(path)

    def run(self, command: str, engine: str, *arguments: str) -> dict[str, Any]:
        status = main([command, *arguments, "--where", self.rules, "--space", self.space, "--engine", engine, "--json"])
        captured = self.capsys.readouterr()
        assert status in (0, 1), captured.err
        found: dict[str, Any] = json.loads(captured.out)
        return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:f}" if hasattr(value, "as_tuple") else str(value).translate(CONTROL)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _rows(folder: Path) -> Counter[str]:
    return Counter(json.dumps(line, sort_keys=True) for line in _lines(folder))


@pytest.mark.soak("parquet", "json")  # Spark plans each command for seconds
@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_both_engines_say_the_same(kind: str, spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    case = Case(SEED + len(kind), kind, tmp_path, capsys)
    said: dict[str, dict[str, Any]] = {}
    for engine in ("spark", "local"):
        out = tmp_path / engine
        skip = ("--on-error", "skip")
        files = ("--output", f"{out}/matches.json", "--skipped", f"{out}/skipped", "--format", "json")
        matched = case.run("match", engine, case.events, *skip, *files)
        found = said[engine] = {
            "matches": _rows(out / "matches.json"),
            "events left out": Counter(_reason(row) for row in _lines(out / "skipped" / "events")),
            "clauses left out": _rows(out / "skipped" / "clauses"),
            "counts": {name: matched[name] for name in ("events", "subscriptions", "matches")} | matched["skipped"],
        }
        found["counts"].pop("path")
        reduced = case.run("reduce", engine, *skip, "--output", f"{out}/kept.json")
        kept = [(row["id"], row["status"], row["subscription_owner"]) for row in _lines(out / "kept.json")]
        found["kept"] = sorted(kept)
        found["reduced"] = {name: reduced[name] for name in ("subscriptions", "active", "passive")}
        report = case.run("audit", engine, *skip, "--merge", "0", "--events", case.events)["audit"]
        found["audit"] = {name: report[name] for name in ("rules", "kept", "duplicates", "events", "never_fired")}
        found["findings"] = sorted((each["id"], each["kind"] == "duplicate") for each in report["findings"])
        learnt = case.run("learn", engine, case.events, *skip)
        found["learnt"] = {name: learnt[name] for name in ("events", "subscriptions", "attributes", "selectivity")}
    for what, theirs in said["spark"].items():
        ours = said["local"][what]
        if isinstance(ours, Counter):
            assert not [*(ours - theirs).items()][:3] and not [*(theirs - ours).items()][:3], what
        assert ours == theirs, what
    assert said["local"]["clauses left out"] and said["local"]["events left out"] and said["local"]["matches"]


def _reason(row: dict[str, Any]) -> str:
    """A row, and why it is left out."""
    return json.dumps([row["error"], row["row"], row.get("record")])


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(folder.glob("part-*"))
        for line in path.read_text("utf-8").split("\n")
        if line
    ]
