"""Opens stores in processes that are killed, at a step of the migration or after a while.

The process that is asked is started once and is small; each store is opened in a fork of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from thatch.node.store import Store


class Killer:
    """Opens stores of broker B1 in processes of their own."""

    def __enter__(self) -> Killer:
        command = [sys.executable, "-m", "helpers.killed_store"]
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
        )
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate(timeout=10)

    def open(self, path: Path, step: str = "", seconds: float = 60.0) -> tuple[bool, float, str]:
        """Open a store in a process that is killed at a step, or after some seconds: whether it was killed before it
        was done, how long it took, and the last step that it came to."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([str(path), step, seconds]), file=self._process.stdin, flush=True)
        status, took, steps = json.loads(self._process.stdout.readline())
        assert status in (0, -signal.SIGKILL), status
        return status != 0, took, steps[-1]


def _open(path: str, last: str, steps: int) -> None:
    def reached(step: str) -> None:
        os.write(steps, f"{step}\n".encode())
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    Store(Path(path), "B1", reached).stop()


def _opened(path: str, step: str, seconds: float) -> tuple[int, float, list[str]]:
    began = time.monotonic()
    reading, steps = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _open(path, step, steps)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(steps)
    ended, status = 0, 0
    while not ended and time.monotonic() < began + seconds:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.001)
    if not ended:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    with open(reading) as said:
        return os.waitstatus_to_exitcode(status), time.monotonic() - began, ["", *said.read().splitlines()]


def main() -> None:
    for line in sys.stdin:
        request: list[Any] = json.loads(line)
        print(json.dumps(_opened(*request)), flush=True)


if __name__ == "__main__":
    main()
