"""Pictures of a recorded run: queues, delays, tables, messages by kind, and false positives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thatch.errors import CallerError

SHOWN = 8  # brokers by name in one picture; the others in grey


def draw(table: pa.Table, folder: Path, title: str) -> list[Path]:
    """Draw one PNG for each question."""
    try:
        import matplotlib
    except ImportError:
        raise CallerError("plots need matplotlib: pip install 'thatch[sim]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    made = []
    for name, paint in (
        ("queues", _queues),
        ("delays", _delays),
        ("tables", _tables),
        ("messages", _messages),
        ("false_positives", _false_positives),
    ):
        figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
        axes.set_title(title, fontsize=9)
        paint(table, axes)
        made.append(folder / f"{name}.png")
        figure.savefig(made[-1], dpi=120)
        plt.close(figure)
    return made


def _of(table: pa.Table, measure: str) -> pa.Table:
    return table.filter(pc.equal(table["measure"], measure))


def _queues(table: pa.Table, axes: Any) -> None:
    _lines(_of(table, "queue"), axes, "messages waiting")


def _tables(table: pa.Table, axes: Any) -> None:
    _lines(_of(table, "table"), axes, "subscriptions held")


def _lines(rows: pa.Table, axes: Any, label: str) -> None:
    """A line a broker; those with the most by name."""
    most = rows.group_by("broker").aggregate([("value", "max")]).sort_by([("value_max", "descending")])
    named = most["broker"].to_pylist()[:SHOWN]
    for broker in reversed(most["broker"].to_pylist()):
        own = rows.filter(pc.equal(rows["broker"], broker)).sort_by("time")
        style = {"label": broker} if broker in named else {"color": "0.8", "linewidth": 0.7}
        axes.plot(own["time"].to_numpy(), own["value"].to_numpy(), **style)
    axes.set_xlabel("seconds")
    axes.set_ylabel(label)
    axes.legend(fontsize=8, title="broker")


def _delays(table: pa.Table, axes: Any) -> None:
    rows = _of(table, "delay").sort_by("time")
    axes.plot(rows["time"].to_numpy(), rows["value"].to_numpy(), ".", markersize=2)
    axes.set_xlabel("seconds")
    axes.set_ylabel("seconds from publication to delivery")
    if len(rows) and pc.max(rows["value"]).as_py() > 100 * max(pc.min(rows["value"]).as_py(), 1e-9):
        axes.set_yscale("log")


def _messages(table: pa.Table, axes: Any) -> None:
    """What brokers had handled at the end, by kind and tier."""
    own = pc.is_in(table["measure"], pa.array(["handled LinkUp", "handled Persisted"]))  # of the driver
    last = _last(table.filter(pc.and_not(pc.starts_with(table["measure"], "handled "), own)))
    sums = last.group_by(["tier", "measure"]).aggregate([("value", "sum")])
    _bars(sums, axes, "measure", "value_sum", "messages handled", strip="handled ")


def _false_positives(table: pa.Table, axes: Any) -> None:
    last = _last(_of(table, "false positives"))
    _bars(last.group_by(["tier", "broker"]).aggregate([("value", "sum")]), axes, "broker", "value_sum",
          "events that nobody wanted there")  # fmt: skip


def _last(rows: pa.Table) -> pa.Table:
    """Counts only grow: the greatest of each is the last."""
    found = rows.group_by(["broker", "tier", "measure"]).aggregate([("value", "max")])
    return found.rename_columns({"value_max": "value"})


def _bars(rows: pa.Table, axes: Any, by: str, value: str, label: str, strip: str = "") -> None:
    names, tiers = sorted(set(rows[by].to_pylist())), sorted(set(rows["tier"].to_pylist()))
    bottom = np.zeros(len(names))
    amounts = {(row["tier"], row[by]): row[value] for row in rows.to_pylist()}
    for tier in tiers:
        heights = np.array([amounts.get((tier, name), 0.0) for name in names])
        axes.bar([name.removeprefix(strip) for name in names], heights, bottom=bottom, label=tier)
        bottom += heights
    axes.set_ylabel(label)
    axes.tick_params(axis="x", rotation=75, labelsize=7)
    axes.legend(fontsize=8)
