"""Real nodes on loopback: events a second from a publisher to a subscriber, each a process, through one node and
through three; as a share of plain relays in the same run, beside NATS core and Mosquitto. Durable publishes
acknowledged a second. How long a broker with 100,000 subscriptions takes to be ready again.

Events are of 100 bytes (values and payload); the subscriber holds 10,000 subscriptions, of which each event matches
one; peers have a topic for each.

    python -m benchmarks.node [--scale SHARE] [--ours]
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import node_peers, report
from thatch.client.client import connect
from thatch.node.store import Store
from thatch.protocol.records import CLIENT, NEIGHBOUR, AdvertisementRecord, LinkRecord, PeerKey, SubscriptionRecord
from thatch.space.space import Space

SPACE = "symbol string not null, price double not null 0..1000"
SUBSCRIPTIONS, EVENTS, DURABLE, RESTORED = 10_000, 60_000, 30_000, 100_000
ROUNDS = 3
OURS_ROUNDS = 6  # of a fraction of a second each: one alone says little about the machine's usual speed
PAYLOAD = b"x" * 78  # with the values, 100 bytes


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(arguments, env=environment, stdout=quiet, stderr=quiet)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def node(name: str, folder: str, ports: tuple[int, int], neighbour: str = "") -> Process:
    dials = ("--neighbour", neighbour) if neighbour else ()
    following = f"B{int(name[1:]) + 1}"  # dials this one
    return Process(
        sys.executable, "-m", "thatch.cli", "broker", "--name", name, "--space", SPACE,
        "--listen", f"127.0.0.1:{ports[0]}", "--overlay", f"127.0.0.1:{ports[1]}",
        "--store", f"{folder}/{name}.thatch", "--accept", following, *dials,
    )  # fmt: skip


def wait_ready(port: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).read()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def wait_open(port: int) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


# --- Ends: a publisher and a subscriber, each a process --------------------------------------------------------------


def worker(kind: str, *arguments: Any) -> subprocess.Popen[str]:
    """`python -m benchmarks.node worker KIND …`: says `ready`, then waits for a line."""
    command = [sys.executable, "-m", "benchmarks.node", "worker", kind, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


async def work(kind: str, url: str, count: int) -> None:
    loop = asyncio.get_running_loop()

    async def go() -> bool:
        return bool((await loop.run_in_executor(None, sys.stdin.readline)).strip())

    def ready() -> None:
        print("ready", flush=True)

    if kind == "relay-sub":
        while True:
            print(await node_peers.read_from_relay(url, count, ready), flush=True)
            if not await go():
                return
    if kind == "relay-pub":
        ready()
        while await go():
            began = time.time()
            await node_peers.publish_to_relay(url, b"x" * 100, count)
            print(began, flush=True)
        return
    async with await connect(url, kind, timeout_seconds=30) as client:
        if kind == "sub":
            clauses = {f"s{each}": f"symbol = 'S{each}' AND price >= {each % 100}" for each in range(SUBSCRIPTIONS)}
            subscription = await client.subscribe_many(clauses, timeout_seconds=60.0)
            ready()
            while await go():
                for _ in range(count):
                    await anext(subscription)
                print(time.time(), flush=True)
        else:
            await client.advertise("TRUE")
            ready()
            while await go():
                began = time.time()
                for each in range(count):
                    await client.post({"symbol": f"S{each % SUBSCRIPTIONS}", "price": 500.0}, PAYLOAD)
                print(began, flush=True)


# --- Contenders ------------------------------------------------------------------------------------------------------


class Course:
    """A way from a publisher to a subscriber: how many events a second get through."""

    def __init__(self, kinds: tuple[str, str], urls: tuple[str, str], count: int) -> None:
        self.count = count
        self._subscriber = worker(kinds[1], urls[1], count)
        self._is_relay = kinds[1] == "relay-sub"
        self._publisher = worker(kinds[0], urls[0], count)
        assert said(self._subscriber) == "ready" and said(self._publisher) == "ready"

    def rate(self) -> float:
        if not self._is_relay:
            say(self._subscriber, "go")
        say(self._publisher, "go")
        began, ended = float(said(self._publisher)), float(said(self._subscriber))
        if self._is_relay:
            say(self._subscriber, "again")
            assert said(self._subscriber) == "ready"
        return self.count / (ended - began)

    def close(self) -> None:
        for each in (self._publisher, self._subscriber):
            each.terminate()
            each.wait()


@contextmanager
def nodes(count: int, folder: str) -> Iterator[list[tuple[int, int]]]:
    """A chain of them: their ports."""
    ports = [(free_port(), free_port()) for _ in range(count)]
    started = []
    for at, each in enumerate(ports):
        dials = f"B{at - 1}=ws://127.0.0.1:{ports[at - 1][1]}" if at else ""
        started.append(node(f"B{at}", folder, each, dials))
    try:
        for each in ports:
            wait_ready(each[0])
        yield ports
    finally:
        for process in started:
            process.stop()


@contextmanager
def relays(count: int) -> Iterator[list[int]]:
    ports = [free_port() for _ in range(count)]
    started = []
    for at in reversed(range(count)):
        following = (f"http://127.0.0.1:{ports[at + 1]}",) if at + 1 < count else ()
        started.append(Process(sys.executable, "-m", "benchmarks.node_peers", "relay", str(ports[at]), *following))
        wait_open(ports[at])
    try:
        yield ports
    finally:
        for process in started:
            process.stop()


def routed(hops: int, events: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, nodes(hops, folder) as ports, relays(hops) as relay_ports:
        ours = Course(("pub", "sub"), (f"ws://127.0.0.1:{ports[0][0]}", f"ws://127.0.0.1:{ports[-1][0]}"), events)
        relay_urls = f"http://127.0.0.1:{relay_ports[0]}", f"http://127.0.0.1:{relay_ports[-1]}"
        theirs = Course(("relay-pub", "relay-sub"), relay_urls, events)
        rates: dict[str, list[float]] = {"ours": [], "relay": []}
        for at in range(ROUNDS + 1):
            measured = {"ours": ours.rate(), "relay": theirs.rate()}
            if at:  # the first one warms up
                for name, rate in measured.items():
                    rates[name].append(rate)
        ours.close()
        theirs.close()
    return {name: statistics.median(each) for name, each in rates.items()}


def peer(
    program: str, run: Callable[..., Any], arguments: Callable[[int, Path], list[str]], events: int
) -> float | None:
    there = node_peers.found(program)
    if there is None:
        print(f"{program} is left out: it is neither installed nor to be had from Debian")
        return None
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        process = Process(there[0], *arguments(port, Path(folder)), environment=there[1])
        try:
            wait_open(port)
            payload = b"x" * 100
            seconds = [asyncio.run(run(port, SUBSCRIPTIONS, payload, events)) for _ in range(ROUNDS)]
        finally:
            process.stop()
    return events / statistics.median(seconds)


def nats_arguments(port: int, folder: Path) -> list[str]:
    return ["-a", "127.0.0.1", "-p", str(port)]


def mosquitto_arguments(port: int, folder: Path) -> list[str]:
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
    )
    return ["-c", str(config)]


# --- Durable, and restarted ------------------------------------------------------------------------------------------


async def _durable(url: str, count: int) -> float:
    async with await connect(url, "kept") as reader, await connect(url, "keeps") as publisher:
        await publisher.advertise("TRUE")
        await reader.subscribe("price >= 0", durable="all")
        rates = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            futures = [await publisher.post({"symbol": "S", "price": 500.0}, PAYLOAD) for _ in range(count)]
            await asyncio.gather(*futures)
            rates.append(count / (time.perf_counter() - began))
        return statistics.median(rates)


def durable(count: int) -> float:
    with tempfile.TemporaryDirectory() as folder, nodes(1, folder) as ports:
        return asyncio.run(_durable(f"ws://127.0.0.1:{ports[0][0]}", count))


def restarted(count: int) -> tuple[float, float]:
    """Seconds from the start of the process until it is ready, with subscriptions of 100 clients, and a neighbour:
    after a clean stop, and from records alone."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "B0.thatch", "B0")
        store.set_space(Space.parse(SPACE).to_json())
        clients, neighbour = [PeerKey(CLIENT, f"c{each}") for each in range(100)], PeerKey(NEIGHBOUR, "B1")
        store.keep(tuple(LinkRecord(each) for each in clients))
        store.keep((LinkRecord(neighbour), AdvertisementRecord(neighbour, "B1/p/a", "price < 500")))
        store.keep(
            tuple(
                SubscriptionRecord(clients[each % 100], f"B0/c{each % 100}/{each}", _clause(each))
                for each in range(count)
            )
        )
        store.start(lambda *_: None, lambda _: None)
        store.stop()
        ports = free_port(), free_port()
        seconds = []
        for _ in range(1 + ROUNDS):
            began = time.perf_counter()
            process = node("B0", folder, ports)
            wait_ready(ports[0])
            seconds.append(time.perf_counter() - began)
            process.stop()
    return statistics.median(seconds[1:]), seconds[0]


def _clause(number: int) -> str:
    low = number * 7919 % 100_000 / 101
    return f"symbol = 'S{number % 1000}' AND price BETWEEN {low:.3f} AND {low + 5:.3f}"


def ours() -> None:
    """Events a second through one node and through three, and durable ones: their geometric mean."""
    rates = {}
    for hops in (1, 3):
        with tempfile.TemporaryDirectory() as folder, nodes(hops, folder) as ports:
            urls = f"ws://127.0.0.1:{ports[0][0]}", f"ws://127.0.0.1:{ports[-1][0]}"
            course = Course(("pub", "sub"), urls, EVENTS // 3)
            rates[f"{hops} hops"] = statistics.median([course.rate() for _ in range(1 + OURS_ROUNDS)][1:])
            course.close()
            if hops == 1:
                rates["durable"] = asyncio.run(_durable(urls[0], DURABLE // 3))
    for name, rate in rates.items():
        print(f"{name}: {rate:.4g} events/s")
    print(f"speed: {statistics.geometric_mean(rates.values()):.6g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="a share of the sizes, for a quick look")
    parser.add_argument("--ours", action="store_true", help="ours alone; a speed comes last")
    options = parser.parse_args()
    if options.ours:
        ours()
    else:
        compare(options.scale)


def compare(scale: float) -> None:
    events = int(EVENTS * scale)
    rows: list[dict[str, Any]] = []
    for hops in (1, 3):
        rates = routed(hops, events)
        rows.append(
            {"what": f"events a second, {hops} hop{'s' * (hops > 1)}", **rates, "ratio": rates["ours"] / rates["relay"]}
        )
        report("node", rows)
    for name, run, arguments in (
        ("nats-server", node_peers.nats, nats_arguments),
        ("mosquitto", node_peers.mosquitto, mosquitto_arguments),
    ):
        rate = peer(name, run, arguments, events)
        if rate is not None:
            rows.append(
                {
                    "what": f"events a second, {name}",
                    "ours": rows[0]["ours"],
                    "relay": rate,
                    "ratio": rows[0]["ours"] / rate,
                }
            )
    rate = durable(int(DURABLE * scale))
    rows.append(
        {"what": "durable publishes acknowledged a second", "ours": rate, "relay": 10_000.0, "ratio": rate / 10_000}
    )
    for what, seconds in zip(
        ("after a clean stop", "from records alone"), restarted(int(RESTORED * scale)), strict=True
    ):
        name = f"seconds to be ready with {int(RESTORED * scale):,} subscriptions, {what}"
        rows.append({"what": name, "ours": seconds, "relay": 5.0, "ratio": 5.0 / seconds})
    for row in rows:
        row["other"] = row.pop("relay")
    report("node", rows)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "worker":
        node_peers.run(work(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        main()
