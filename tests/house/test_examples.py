"""The examples run, and what they print is right: counted again here in plain Python."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from typing import Any

import pytest

from helpers.paths import ROOT

EXAMPLES = ROOT / "examples"
LONGER = {"protocol_client.py"}  # tests/node/test_protocol_client.py tests it


def run(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], str]:
    """Its names, and what it prints."""
    path = EXAMPLES / name
    monkeypatch.setattr(sys, "argv", [str(path)])
    names = runpy.run_path(str(path), run_name="__main__")
    return names, capsys.readouterr().out


def test_every_example_is_tested_and_short() -> None:
    scripts = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    for name in LONGER:
        del scripts[name]
    assert scripts.keys() == {"price_alerts.py", "geofences.py", "packet_rules.py"}
    assert max(scripts.values()) < 80


def test_price_alerts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names, out = run("price_alerts.py", capsys, monkeypatch)
    assert "know 4 of them: bargains, blocks, watchlist, eve\n" in out
    assert "'ann' is passive: it is covered by 'watchlist'\n" in out
    assert "'bob' is passive: it is covered by the union of 'bargains', 'blocks'\n" in out
    assert "'ann' does not match: price BETWEEN 10.0D AND 50.0D fails: price is 55.0\n" in out
    assert "first forward ['ann'], then withdraw ['watchlist']\n  'ann' is active: no other" in out
    wanted: dict[str, Callable[..., bool]] = {
        "bargains": lambda symbol, price, volume: price < 20,
        "blocks": lambda symbol, price, volume: price >= 20 and volume >= 800_000,
        "watchlist": lambda symbol, price, volume: symbol in names["WATCHED"] and price < 60,
        "ann": lambda symbol, price, volume: symbol == names["WATCHED"][0] and 10 <= price <= 50,
        "bob": lambda symbol, price, volume: volume > 900_000,
        "eve": lambda symbol, price, volume: symbol.startswith("B") and price > 95,
    }
    ticks = list(zip(*names["ticks"](5_000).values(), strict=True))
    for alert, holds in wanted.items():
        assert re.search(rf"^  {alert} +{sum(holds(*tick) for tick in ticks):,}  ", out, re.MULTILINE), alert
    somebody = sum(any(holds(*tick) for holds in wanted.values()) for tick in ticks)
    assert f"5,000 ticks, {somebody:,} of them wanted" in out


def test_geofences(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names, out = run("geofences.py", capsys, monkeypatch)
    events = names["earthquakes"]()
    for fence, clause in names["FENCES"].items():
        region = names["SPACE"].where(clause)
        assert re.search(rf"^  {fence} +{sum(region.contains(event) for event in events)}  ", out, re.MULTILINE), fence
    assert "'downtown' is passive: it is covered by 'los-angeles'\n" in out
    assert "certainly wanted by ['california-south', 'downtown', 'los-angeles'], possibly by" in out
    assert "certainly wanted by nobody, possibly by ['california-north', 'california-south']\n" in out
    assert "one of these wants it: ['california-north', 'california-south']\n" in out
    outside = re.search(r"nobody wants it if it was at (\S+), (\S+)\n", out)
    assert outside is not None
    longitude, latitude = map(float, outside.groups())
    assert 123 < longitude <= 123.8 and 23 <= latitude <= 25


def test_packet_rules(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names, out = run("packet_rules.py", capsys, monkeypatch)
    assert out.startswith("fw1_1k: 856 rules; 13 are redundant:")
    assert "  9 are covered by one rule: " in out and "  4 are covered only by several together:\n" in out
    boxes = [names["box_of"](line) for line in names["RULES"].read_text().splitlines()]
    for number, by in re.findall(r"(\d+) by (\d+)", out):
        inside, around = boxes[int(number) - 1], boxes[int(by) - 1]
        assert int(by) < int(number)
        assert all(one[0] <= two[0] and two[1] <= one[1] for one, two in zip(around, inside, strict=True))
    assert "8,560 packets drawn from the rules" in out and "first match, 0 of them redundant\n" in out


def test_packet_rules_of_another_file(capsys: pytest.CaptureFixture[str]) -> None:
    names = runpy.run_path(str(EXAMPLES / "packet_rules.py"))
    names["main"](names["RULES"].parent / "acl1_1k")
    assert capsys.readouterr().out.startswith("acl1_1k: 941 rules; 22 are redundant:")
