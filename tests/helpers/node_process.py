"""Brokers as processes, on ports of their own, for tests."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

SPACE = "price double not null 0..1000000000000, symbol string, number int"
READY_SECONDS = 30.0


PORTS = range(15_000, 30_000)  # no system gives one of these to a connection, so it stays free while a broker is away
_given: set[int] = set()


def free_port() -> int:
    """One that no other test of this process has, and nobody listens on."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


class BrokerProcess:
    """`thatch broker` in a folder; started again, it has the same ports and the same store."""

    def __init__(
        self,
        name: str,
        folder: Path,
        neighbours: dict[str, str] | None = None,
        settings: str = "",
        prefix: tuple[str, ...] = (),
        accept: tuple[str, ...] = (),
    ) -> None:
        self.name, self.folder, self.prefix = name, folder, prefix
        self.host, self.overlay_host = "127.0.0.1", "127.0.0.1"
        self.client_port, self.overlay_port = free_port(), free_port()
        self.neighbours, self.settings, self.accept = neighbours or {}, settings, accept
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / f"{name}.log"

    @property
    def url(self) -> str:
        return f"ws://{self.host}:{self.client_port}"

    @property
    def overlay(self) -> str:
        return f"ws://{self.overlay_host}:{self.overlay_port}"

    @property
    def store(self) -> Path:
        return self.folder / f"{self.name}.thatch"

    def spawn(self) -> None:
        listed = "".join(f'{name} = "{url}"\n' for name, url in self.neighbours.items())
        config = self.folder / f"{self.name}.toml"
        config.write_text(
            f'name = "{self.name}"\nspace = "{SPACE}"\nstore = "{self.store}"\naccept = {list(self.accept)}\n'
            + ("exposed = true\n" if {self.host, self.overlay_host} != {"127.0.0.1"} else "")
            + f'client = {{ host = "{self.host}", port = {self.client_port} }}\n'
            f'overlay = {{ host = "{self.overlay_host}", port = {self.overlay_port} }}\n'
            f"{self.settings}\n[neighbours]\n{listed}"
        )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "thatch.cli", "broker", str(config)], stderr=log, stdout=log
            )

    def start(self) -> BrokerProcess:
        self.spawn()
        self.wait_ready()
        return self

    def wait_ready(self) -> None:
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended:\n{self.log.read_text()[-2000:]}")
            try:
                if self.get("/healthz")["ready"]:
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"{self.name} is not ready:\n{self.log.read_text()[-2000:]}")

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.host}:{self.client_port}{path}", timeout=5) as response:
            body = response.read()
        return json.loads(body) if body[:1] in b"{[" else body.decode()

    def post(self, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.host}:{self.client_port}/events", data, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=15) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def metric(self, name: str) -> float:
        """The sum over its labels."""
        lines = [
            line
            for line in self.get("/metrics").splitlines()
            if line.startswith((f"thatch_{name} ", f"thatch_{name}{{"))
        ]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def memory_mb(self) -> float:
        assert self.process is not None
        pid = self.process.pid
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds: float = 10.0) -> int:
        """Gracefully; its exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


def chain(folder: Path, names: tuple[str, ...] = ("B1", "B2", "B3"), settings: str = "") -> list[BrokerProcess]:
    """Each dials the one before it."""
    brokers: list[BrokerProcess] = []
    for name, following in zip(names, (*names[1:], ""), strict=True):
        neighbours = {brokers[-1].name: brokers[-1].overlay} if brokers else {}
        brokers.append(BrokerProcess(name, folder, neighbours, settings, accept=(following,) if following else ()))
    for broker in brokers:
        broker.spawn()
    for broker in brokers:
        broker.wait_ready()
    return brokers


def agree(brokers: list[BrokerProcess]) -> bool:
    """Whether every link is synced, and what was sent over it is what was received."""
    tables = {broker.name: broker.get("/tables")["links"] for broker in brokers}
    health = [broker.get("/healthz")["neighbours"] for broker in brokers]
    if not all(all(each.values()) for each in health):
        return False
    for name, links in tables.items():
        for other in set(links) & set(tables):
            for table in ("subscriptions", "advertisements"):
                if links[other][table]["sent"] != tables[other][name][table]["received"]:
                    return False
    return True


def wait_agree(brokers: list[BrokerProcess], seconds: float) -> float:
    """How long it took."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        try:
            if agree(brokers):
                return time.monotonic() - began
        except (OSError, KeyError):
            pass
        time.sleep(0.02)
    logs = "\n".join(f"{each.name}: {each.log.read_text()[-1500:]}" for each in brokers)
    raise AssertionError(f"neighbours do not agree within {seconds:g} s\n{logs}")


def is_soak() -> bool:
    return bool(os.environ.get("THATCH_SOAK"))
