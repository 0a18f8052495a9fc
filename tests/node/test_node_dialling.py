"""A neighbour that cannot be reached: the log says why, once, and that it was reached at last."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from helpers.raw_peers import run, running, until
from thatch.errors import ConfigError
from thatch.node.config import Config, Listen, Timing
from thatch.node.dialling import why_unreached


def test_why_a_neighbour_cannot_be_reached_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "thatch.node")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free = listening.getsockname()[1]

    def lines(name: str) -> list[str]:
        return [each.getMessage() for each in caplog.records if f"neighbour {name}" in each.getMessage()]

    async def scenario() -> None:
        async with running(tmp_path, "B1") as one:
            client, overlay = (f"127.0.0.1:{port}" for port in (one.client_port, one.overlay_port))
            reasons = {
                "C1": (f"ws://{client}", "that is a client port: use the overlay port"),
                "C2": (f"ws://{overlay}/overlay", f"leave out the path '/overlay': ws://{overlay}"),
                "C3": (f"https://{overlay}", "it does not speak TLS"),
                "C4": (f"ws://127.0.0.1:{free}", "nothing listens there"),
            }
            neighbours = {name: address for name, (address, _) in reasons.items()}
            timing = Timing(retry_seconds_max=0.05)
            async with running(tmp_path, "B2", neighbours=neighbours, timing=timing):
                await until(lambda: all(lines(name) for name in reasons))
                await asyncio.sleep(4 * timing.retry_seconds_max)
                for name, (address, reason) in reasons.items():
                    (line,) = lines(name)
                    assert line.startswith(f"cannot reach neighbour {name} at {address}: {reason}"), line
                async with running(tmp_path, "C4", overlay=Listen(port=free)):
                    await until(lambda: "neighbour C4 is connected" in lines("C4"))

    run(scenario())


def test_a_host_that_nobody_knows() -> None:
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    said = asyncio.run(why_unreached(error, "ws://nosuch.host.invalid:7879", None))  # type: ignore[arg-type]
    assert said == "no host has this name"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ws://127.0.0.1:99999", "neighbour 'B1': 'ws://127.0.0.1:99999': 99999 is not a port"),
        ("there", "a URL such as ws://127.0.0.1:7879, not 'there'"),
    ],
)
def test_an_address_that_cannot_be_is_refused_at_the_start(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(name="B2", space="price double", neighbours={"B1": url})
    assert reason in str(caught.value)
