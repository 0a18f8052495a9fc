"""Matching on executors that are processes of their own, each with its own working directory."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from helpers.spark_cluster import FEW_WAYS, Cluster

pytestmark = pytest.mark.background


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    pytest.importorskip("pyspark")
    process = Cluster.process
    assert process is not None
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said[-3000:]
    report: dict[str, Any] = json.loads((Cluster.folder / "report.json").read_text())
    return report


def test_executors_are_asked_for_their_python(report: dict[str, Any]) -> None:
    assert report["pythons"] == [sys.executable] * 2
    assert "has no Python at 'no/such/python' (which PYSPARK_PYTHON names)" in report["without python"]


@pytest.mark.parametrize("name", [way.name for way in FEW_WAYS])
def test_every_way_finds_what_spark_finds(name: str, report: dict[str, Any]) -> None:
    assert report["executors"] == 2
    assert report["wanted"] > 1000
    assert report["differences"][name] == ""


@pytest.mark.parametrize("strategy", ["arrow", "files"])
def test_the_index_travels_as_a_broadcast(strategy: str, report: dict[str, Any]) -> None:
    """The function that each task gets is small; the index, a hundred times as large, is fetched once an executor."""
    assert report["function bytes"][strategy] < 20_000
    assert report["index bytes"][strategy] > 1_000_000


@pytest.mark.parametrize("strategy", ["arrow", "files"])
def test_executors_share_an_index_and_clean_up(strategy: str, report: dict[str, Any]) -> None:
    """One file in each folder of an executor while the broadcast is in use, none after other work."""
    folders = report["index folders"][strategy]
    assert 1 <= len(folders) == len(set(folders)) <= 2
    assert report["index files later"][strategy] == []
