"""A neighbour whose link would close a cycle, on real nodes: nobody waits for it, and it is dialled ever less often."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from helpers.raw_peers import run, running, until, url
from thatch.client import connect
from thatch.node.config import Timing
from thatch.node.server import Node
from thatch.protocol.messages import Hello

FAST = Timing(retry_seconds_max=0.02)


def overlay(node: Node) -> str:
    return f"ws://127.0.0.1:{node.overlay_port}"


def refusals(*nodes: Node) -> int:
    """How often one of these has refused, or was, for a cycle."""
    both = [each.by_code for node in nodes for each in (node.driver.refusals, node.driver.refused_by)]
    return sum(each["cycle"].total for each in both if "cycle" in each)


def test_hole_43_and_49_nobody_waits_for_a_refused_link(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, "B1") as one, running(tmp_path, "B2", neighbours={"B1": overlay(one)}) as two:
            await until(lambda: "B2" in one.driver.broker.links and one.driver.broker.links["B2"].is_synced)
            both = {"B2": overlay(two), "B1": overlay(one)}
            async with running(tmp_path, "B3", neighbours=both, timing=FAST) as three:
                await until(lambda: refusals(three) > 0)
                for node in (one, two, three):
                    client = await connect(url(node))
                    await asyncio.wait_for(client.subscribe("price < 5"), 5.0)
                    await client.close()
                before = refusals(three)
                await asyncio.sleep(0.6)
                assert refusals(three) - before <= 5, "not every 0.02 seconds"
                assert sum(len(node.driver.broker.links.keys() & {"B1", "B2", "B3"}) for node in (one, two, three)) == 4

    run(scenario())


def test_t2_10_a_refused_link_with_interest_stays_down_and_the_log_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is kept for a durable subscriber behind it stays, and an operator sees why it is down."""
    caplog.set_level(logging.INFO, "thatch.node")

    async def scenario() -> None:
        async with running(tmp_path, "B1") as one:
            writer = await connect(url(one), "ann")
            await writer.advertise("TRUE")
            async with running(tmp_path, "B3", neighbours={"B1": overlay(one)}) as three:
                reader = await connect(url(three), "bob")
                await reader.subscribe("price < 5", durable="alerts")
                await reader.close()
            await until(lambda: not one.driver.broker.links["B3"].is_up)
            await writer.publish({"price": 1.0})
            text = one.driver.broker.space.to_json()
            for session in (1, 2, 3):
                one.driver.take(one.driver.next_link_up(), "B3")
                one.driver.take(Hello("B3", session, text, members=("B3", "B1")), "B3")
                (link,) = [each for each in one.admin._links() if each["name"] == "B3"]
                assert link["state"] == "cycle" and link["kept_events"] == 1
            await writer.close()

    run(scenario())
    (line,) = [each.getMessage() for each in caplog.records if "stays down" in each.getMessage()]
    assert line.startswith("neighbour B3 stays down") and "thatch admin forget B3" in line
