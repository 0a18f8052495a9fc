"""The client of examples/protocol_client.py, as a process of its own, at a broker that is another one."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.node_process import BrokerProcess
from helpers.paths import ROOT

EXAMPLE = ROOT / "examples" / "protocol_client.py"
SECONDS = 20.0  # for anything that is waited for
MANY = 1_500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess("B1", tmp_path_factory.mktemp("broker"))
    yield broker.start()
    broker.kill()


class ClientProcess:
    """The example with a name, at a broker; what it prints goes to files."""

    def __init__(self, broker: BrokerProcess, folder: Path, name: str, *arguments: str) -> None:
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        url = f"http://{broker.host}:{broker.client_port}"
        command = [sys.executable, str(EXAMPLE), *arguments, "--url", url, "--name", name]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    def events(self) -> list[dict[str, Any]]:
        """Those of whole lines."""
        return [json.loads(line) for line in self.out.read_text().rpartition("\n")[0].splitlines()]

    def numbers(self) -> list[int]:
        return [each["event"]["number"] for each in self.events()]

    def wait(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < end, f"{self.out.read_text()[-1000:]}\n{self.err.read_text()[-1000:]}"
            time.sleep(0.005)

    def wait_settled(self) -> None:
        self.wait(lambda: "settled\n" in self.err.read_text())

    def wait_numbers(self, numbers: list[int]) -> None:
        """For so many events, which are these."""
        self.wait(lambda: self.out.read_bytes().count(b"\n") >= len(numbers))
        assert self.numbers() == numbers

    def status(self) -> int:
        """When it has ended."""
        self.wait(lambda: self.process.poll() is not None)
        return self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def client(broker: BrokerProcess, tmp_path: Path) -> Iterator[Callable[..., ClientProcess]]:
    """Starts one: its name, then its arguments."""
    started: list[ClientProcess] = []

    def start(name: str, *arguments: str) -> ClientProcess:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(ClientProcess(broker, folder, name, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def event(number: int, price: float = 5.0) -> str:
    return json.dumps({"price": price, "number": number})


def test_it_is_short_and_does_not_use_the_library() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    imported: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported - sys.stdlib_module_names == {"aiohttp", "msgspec"}


def test_events_come_again_until_they_are_acknowledged(
    broker: BrokerProcess, client: Callable[..., ClientProcess]
) -> None:
    durable = "subscribe", "price < 20", "--durable", "alerts"
    ann, bob = client("ann", *durable, "--acknowledge", "3"), client("bob", "subscribe", "price < 20")
    ann.wait_settled()
    bob.wait_settled()
    publishing = client("pub", "publish", event(0, price=30.0), '{"prize": 5}', *map(event, range(1, 9)))
    assert publishing.status() == 0
    assert "'prize' is not in the space" in publishing.err.read_text()
    assert publishing.err.read_text().endswith("published 9 events\n")
    bob.wait_numbers([1, 2, 3, 4, 5, 6, 7, 8])
    ann.wait_numbers([1, 2, 3, 4, 5, 6, 7, 8])

    ann.kill()
    assert broker.post([{"price": 5.0, "number": 9}, {"price": 5.0, "number": 10}])[0] == 200
    client("bob", "subscribe", "TRUE")
    client("ann", *durable).wait_numbers([4, 5, 6, 7, 8, 9, 10])
    assert bob.status() == 1 and "another connection came as 'bob'" in bob.err.read_text()


def test_nothing_is_lost_when_the_broker_is_killed(broker: BrokerProcess, client: Callable[..., ClientProcess]) -> None:
    reading = client("eve", "subscribe", "price < 20", "--durable", "all")
    reading.wait_settled()
    publishing = client("pub", "publish", *map(event, range(MANY)))
    reading.wait(lambda: reading.out.stat().st_size > 1_000)
    broker.kill()
    assert publishing.process.poll() is None, "killed in mid-publish"
    broker.spawn()
    assert publishing.status() == 0
    assert publishing.err.read_text().endswith(f"published {MANY} events\n")
    reading.wait_numbers(list(range(MANY)))
