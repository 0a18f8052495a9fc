"""Audits of real rule sets and of generated alerts: every claim is checked by the verifier, from the JSON alone."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from helpers.spark_oracles import SEED, SOAK, table_of_boxes
from thatch import Region, Space
from thatch.cover import Covered, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from benchmarks.classbench import ROOT, VENDORED, read_rules
from benchmarks.classbench import SPACE as PACKETS

import thatch.spark as ts

SYMBOLS = [f"{a}{b}{c}" for a in "ABCDEFGH" for b in "AEIOUY" for c in "LMNRSTXZ"]
ALERTS = Space.parse("symbol string not null, price double not null 0..1000, volume int not null 0..")


def check_claims(report: dict[str, Any], space: Space) -> int:
    """Every claim, one by one. How many there were."""
    where = cache(space.where)  # what is redundant stands there twice
    regions = {each["id"]: where(each["where"]) for each in report["clauses"]}
    redundant = {each["id"] for each in report["findings"]}
    groups = [group for group in report["duplicates"] if len(group) > 1]
    kept = [next((id for id in group if id not in redundant), group[0]) for group in groups]
    same = {id for group, first in zip(groups, kept, strict=True) for id in group if id != first}
    for each in report["findings"]:
        region, names = where(each["where"]), each["covered_by"]
        assert not redundant.intersection(names)
        assert verify(Covered(tuple(names)), region, regions), each
        wanted = {0: "matches nothing", 1: "inside one"}.get(len(names), "inside several")
        if each["id"] in same:
            wanted = "duplicate"
        assert each["kind"] == wanted and (each["kind"] == "matches nothing") == region.is_empty
        check_parts(each, region, regions)
    for group in report["duplicates"]:
        assert len({tuple(regions[id].terms) for id in group}) == 1 < len(group)
    for each in report["mergers"]:
        merger = space.where(each["where"])
        assert all(verify(Covered((0,)), regions[id], {0: merger}) for id in each["members"])
        if not each["added"]:
            assert verify(Covered(tuple(each["members"])), merger, {id: regions[id] for id in each["members"]})
        assert each["saves"]["rules"] == len(each["members"]) - 1 > 0
    assert report["kept"] + len(redundant) == report["rules"]
    by_region: dict[Any, list[Any]] = {}
    for id in regions:
        by_region.setdefault(regions[id].terms, []).append(id)
    want_the_same = {frozenset(ids) for terms, ids in by_region.items() if terms and len(ids) > 1}
    assert {frozenset(group) for group in report["duplicates"]} == want_the_same
    return len(report["findings"]) + len(report["duplicates"]) + len(report["mergers"])


def check_parts(finding: dict[str, Any], region: Region, regions: dict[Any, Region]) -> None:
    """A proof in words says where each rule wants it: that part of the whole lies in the rule that is named."""
    for where, name in re.findall(r"where ([^;…]*), ('[^']*'|-?\d+) wants it", finding["proof"]):
        own = region.space.where(where) & region
        id = name.strip("'") if name.startswith("'") else int(name)
        assert verify(Covered((id,)), own, regions), (finding, where)


SETS = ["acl1_1k", "fw1_1k", *(["acl3_1k", "fw3_1k", "ipc1_1k", "acl1_10k", "fw1_10k"] if SOAK else [])]


@pytest.mark.soak("acl1_1k")
@pytest.mark.parametrize("name", SETS)
def test_packet_filters(name: str, spark: SparkSession) -> None:
    data = Path(os.environ.get("THATCH_DATA", ROOT.parent / "shared" / "data")) / "classbench"
    path = next((folder / name for folder in (VENDORED, data) if (folder / name).is_file()), None)
    if path is None:
        pytest.skip(f"{name} is not in {data}: set THATCH_DATA")
    low, high = read_rules(path)
    found = ts.audit(table_of_boxes(spark, low, high, PACKETS), PACKETS, merge=0.0)
    assert check_claims(json.loads(json.dumps(found.to_json())), PACKETS) > 0
    assert found.rules == len(low)


def alerts(count: int, symbols: Sequence[str]) -> dict[str, str]:
    """Thresholds on symbols, some of them copies, some within others, some that several make up."""
    dice = Random(SEED)
    clauses = {}
    for at in range(count):
        low, width = dice.randrange(0, 900), dice.choice((5, 10, 50, 100))
        symbol = f"symbol = '{dice.choice(symbols)}'"
        if dice.random() < 0.002:
            symbol = f"symbol IN ('{dice.choice(symbols)}', '{dice.choice(symbols)}', '{dice.choice(symbols)}')"
        volume = dice.choice(("", "", f" AND volume >= {dice.choice((100, 1000, 10_000))}"))
        clauses[f"alert-{at}"] = f"{symbol} AND price BETWEEN {low} AND {low + width}{volume}"
    return clauses


@pytest.mark.soak
def test_many_alerts(spark: SparkSession) -> None:
    """A hundred thousand, as typed bounds; without mergers, which take longer than all the rest."""
    draw, n = np.random.default_rng(SEED), 100_000
    symbols = np.array([f"{symbol}{number}" for symbol in SYMBOLS for number in range(20)])
    symbol, low = draw.choice(symbols, n), draw.integers(0, 900, n).astype(np.float64)
    volume = draw.choice([0, 100, 1000, 10_000], n)
    table = pa.table(
        {
            "id": np.arange(n),
            "low_symbol": symbol,
            "high_symbol": symbol,
            "low_price": low,
            "high_price": low + draw.choice([5.0, 10.0, 50.0, 100.0], n),
            "low_volume": pa.array(volume, mask=volume == 0),
        }
    )
    found = ts.audit(spark.createDataFrame(table).localCheckpoint(), ALERTS, merge=None)
    assert found.rules == n
    assert check_claims(json.loads(json.dumps(found.to_json())), ALERTS) > 10_000


def test_alerts_and_mergers(spark: SparkSession) -> None:
    clauses = alerts(20_000 if SOAK else 2_000, SYMBOLS)
    table = pa.table({"id": list(clauses), "where": list(clauses.values())})
    draw = np.random.default_rng(SEED)
    events = pa.table(
        {
            "symbol": draw.choice(SYMBOLS, 500),
            "price": draw.uniform(0, 1000, 500),
            "volume": draw.integers(0, 20_000, 500),
        }
    )
    found = ts.audit(spark.createDataFrame(table), ALERTS, merge=0.1, events=spark.createDataFrame(events))
    report = json.loads(json.dumps(found.to_json()))
    assert check_claims(report, ALERTS) > len(clauses) // 10
    assert {each["kind"] for each in report["findings"]} >= {"duplicate", "inside one"} and report["mergers"]
    for each in Random(SEED).sample(report["findings"], 50):
        assert each["saves"]["matches"] == ALERTS.where(each["where"]).contains_batch(events).sum()
        assert each["saves"]["bytes"] == len(each["where"])
    silent = {id for id, where in clauses.items() if not ALERTS.where(where).contains_batch(events).any()}
    assert set(report["never_fired"]) == silent and len(silent) > 10
    text = found.page()
    assert "<svg" in text and "http" not in text and "Redundant: duplicate" in text and "Could be merged" in text
