"""`thatch demo --network`: three brokers on loopback, the earthquakes of a week, and a broker that is killed.

south ── middle ── north          each a process; a publisher at south, subscribers at all three
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from thatch.cli.demo_earthquakes import SPACE, SUBSCRIPTIONS, earthquakes
from thatch.cli.demo_flights import cut
from thatch.cli.tabular import table
from thatch.client.client import connect
from thatch.client.subscription import AsyncSubscription
from thatch.errors import Unavailable

BROKERS = ("south", "middle", "north")
READERS = {"tsunami-centre": "south", "california": "middle", "felt": "north", "islands": "north"}
ALSO = {"west-coast": ("north", "region = 'CA' AND magnitude BETWEEN 3 AND 4")}  # covered: held back by its broker
READY_SECONDS = 60.0


class BrokerProcess:
    """`thatch broker` in a folder of its own; started again, it goes on where it was."""

    def __init__(self, name: str, folder: Path, before: BrokerProcess | None) -> None:
        self.name, self._folder = name, folder
        self._accepts = BROKERS[BROKERS.index(name) + 1 :][:1]
        self.port, self.overlay = _free_port(), _free_port()
        self._dials = f"{before.name}=ws://127.0.0.1:{before.overlay}" if before is not None else ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            sys.executable, "-m", "thatch.cli", "broker", "--name", self.name, "--space", SPACE.to_json(),
            "--store", str(self._folder / f"{self.name}.thatch"),
            "--listen", f"127.0.0.1:{self.port}", "--overlay", f"127.0.0.1:{self.overlay}",
        ]  # fmt: skip
        command += ["--neighbour", self._dials] if self._dials else []
        for name in self._accepts:
            command += ["--accept", name]
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def get(self, page: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{page}", timeout=5) as response:
            return json.loads(response.read())

    def wait(self) -> None:
        """Until it is ready and its links are up."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            try:
                if all(self.get("/healthz")["neighbours"].values()):
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise Unavailable(f"broker {self.name} is not ready: {(self._folder / f'{self.name}.log').read_text()[-500:]}")


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        brokers: dict[str, BrokerProcess] = {}
        before = None
        for name in BROKERS:
            before = brokers[name] = BrokerProcess(name, Path(folder), before)
        try:
            for broker in brokers.values():
                broker.start()
            for broker in brokers.values():
                broker.wait()
            return asyncio.run(_scenario(brokers))
        finally:
            for broker in brokers.values():
                broker.kill()


async def _scenario(brokers: dict[str, BrokerProcess]) -> dict[str, Any]:
    events = earthquakes()
    async with await connect(brokers["south"].url, "seismograph") as publisher:
        await publisher.advertise("TRUE")
        readers = {name: await connect(brokers[home].url, name) for name, home in READERS.items()}
        subscriptions = {
            name: await reader.subscribe(SUBSCRIPTIONS[name], durable="all") for name, reader in readers.items()
        }
        (also, (home, where)) = next(iter(ALSO.items()))
        async with await connect(brokers[home].url, also) as second:
            await second.subscribe("region = 'CA' AND magnitude BETWEEN 2 AND 5")
            await second.subscribe(where)
            tables = {name: broker.get("/tables")["links"] for name, broker in brokers.items()}
        half = len(events) // 2
        futures = [await publisher.post(event) for event in events[:half]]
        began = time.monotonic()
        brokers["middle"].kill()
        futures += [await publisher.post(event) for event in events[half:]]
        ids = await asyncio.gather(*futures)
        acknowledged = time.monotonic() - began
        brokers["middle"].start()
        await asyncio.to_thread(brokers["middle"].wait)
        back = time.monotonic() - began
        rows = [await _read(name, subscriptions[name], events, ids) for name in READERS]
        for reader in readers.values():
            await reader.close()
    return {
        "brokers": [_summary(name, links) for name, links in tables.items()],
        "events": len(events),
        "published_before_the_kill": half,
        "acknowledged_after_seconds": acknowledged,
        "back_after_seconds": back,
        "subscribers": rows,
    }


async def _read(
    name: str, subscription: AsyncSubscription, events: list[dict[str, Any]], ids: list[str]
) -> dict[str, Any]:
    """What a subscriber got, compared with what brute force says that it wants."""
    region = SPACE.where(SUBSCRIPTIONS[name])
    wanted = {id for id, event in zip(ids, events, strict=True) if region.contains(event)}
    got: list[str] = []
    try:
        while len(set(got) & wanted) < len(wanted):
            got.append((await subscription.next(10)).id)
    except TimeoutError:
        pass  # what is missing is reported
    subscription.done()
    return {
        "subscriber": name,
        "at": READERS[name],
        "where": SUBSCRIPTIONS[name],
        "wants": len(wanted),
        "got": len(got),
        "missing": len(wanted - set(got)),
        "twice": len(got) - len(set(got)),
    }


def _summary(name: str, links: dict[str, Any]) -> dict[str, Any]:
    clients = [each["subscriptions"]["received"] for each in links.values() if each["client"]]
    neighbours = {other: each["subscriptions"] for other, each in links.items() if not each["client"]}
    return {
        "broker": name,
        "of_clients": sum(map(len, clients)),
        "received": {other: len(each["received"]) for other, each in neighbours.items()},
        "sent": {other: len(each["sent"]) for other, each in neighbours.items()},
    }


def shown(result: dict[str, Any]) -> str:
    """The result as text for a terminal."""
    tables = [["broker", "of its clients", "received from", "sent to"]]
    for each in result["brokers"]:
        parts = [", ".join(f"{name} {count}" for name, count in each[key].items()) for key in ("received", "sent")]
        tables.append([each["broker"], str(each["of_clients"]), *parts])
    rows = [["subscriber", "at", "wants", "got", "missing", "twice", "where"]]
    for row in result["subscribers"]:
        counts = [f"{row[key]:,}" for key in ("wants", "got", "missing", "twice")]
        rows.append([row["subscriber"], row["at"], *counts, cut(row["where"])])
    missing = sum(row["missing"] for row in result["subscribers"])
    twice = sum(row["twice"] for row in result["subscribers"])
    acknowledged, back = result["acknowledged_after_seconds"], result["back_after_seconds"]
    return "\n".join(
        [
            "Loaded: three brokers on loopback, each a process: south - middle - north. Subscriptions they keep:",
            table(tables),
            "A covered subscription is held back: a neighbour gets fewer subscriptions than there are.",
            f"Question: {result['events']:,} earthquakes are published at south; after "
            f"{result['published_before_the_kill']:,} of them,\nmiddle is killed (kill -9). Is one lost?",
            f"Answer: all were acknowledged {acknowledged:.1f} s after the kill, without middle; it was back after "
            f"{back:.1f} s.\nEach subscriber then got what was kept for it:",
            table(rows),
            ("Nothing was lost." if not missing else f"{missing} events are MISSING.")
            + (f" {twice} events came TWICE." if twice else ""),
        ]
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
