"""Standard input, output and errors: pipes that live, streams that are closed or full, and Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.node_process import BrokerProcess, free_port
from helpers.raw_peers import run, running, url
from thatch.cli import publish
from thatch.cli.event_lines import EventLines
from thatch.cli.main import main
from thatch.cli.streams import OutputError, _Errors, _Output
from thatch.cli.subscribe import _print_events
from thatch.client.client import connect
from thatch.errors import CallerError, TimedOut
from thatch.node.config import Listen
from thatch.node.server import Node


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess("B1", tmp_path_factory.mktemp("broker")).start()
    yield process
    process.kill()


def shell(command: str, broker: BrokerProcess) -> tuple[int, str]:
    """Exit status, and what it said where errors go."""
    line = f"exec {sys.executable} -m thatch.cli {command}"
    environment = os.environ | {"URL": broker.url}
    done = subprocess.run(["sh", "-c", line], env=environment, stderr=subprocess.PIPE, text=True, timeout=30)
    return done.returncode, done.stderr


def test_without_standard_output_nothing_is_acknowledged(broker: BrokerProcess) -> None:
    async def scenario() -> None:
        async with await connect(broker.url, "bob") as bob, await connect(broker.url, "ann") as ann:
            await bob.subscribe("TRUE", durable="z")
            await ann.advertise("TRUE")
            await ann.publish({"price": 5.0})
        command = 'subscribe TRUE --name bob --durable z --count 1 --url "$URL" >&-'
        assert shell(command, broker) == (2, "thatch: standard output is closed\n")
        async with await connect(broker.url, "bob") as bob:
            queue = await bob.subscribe("TRUE", durable="z")
            assert (await queue.next(5)).event == {"price": 5.0}
            await bob.unsubscribe(queue)

    run(scenario())


def test_what_was_done_is_said_where_standard_output_is_closed(broker: BrokerProcess) -> None:
    said = "thatch: standard output is closed; 1 published\n"
    assert shell('publish \'{"price": 5}\' --url "$URL" >&-', broker) == (2, said)


def test_standard_input_that_is_closed_is_said_to_be(broker: BrokerProcess) -> None:
    assert shell('publish --url "$URL" <&-', broker) == (2, "thatch: standard input is closed\n")


def test_one_interrupt_ends_a_publisher_that_waits_for_lines(broker: BrokerProcess) -> None:
    before = broker.metric("events_received_total")
    command = [sys.executable, "-m", "thatch.cli", "publish", "--url", broker.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as publisher:
        assert publisher.stdin is not None and publisher.stderr is not None
        publisher.stdin.write(b'{"price": 5}\n')
        publisher.stdin.flush()
        end = time.monotonic() + 20
        while broker.metric("events_received_total") == before and time.monotonic() < end:
            time.sleep(0.02)
        publisher.send_signal(signal.SIGINT)
        assert publisher.wait(10) == 130
        assert publisher.stderr.read() == b"1 published, 0 read and not acknowledged\n"


def options(node: Node, **more: Any) -> argparse.Namespace:
    return argparse.Namespace(url=url(node), name=None, timeout=5.0, advertise="TRUE", json=False, **more)


def test_each_line_of_a_pipe_goes_out_as_it_comes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        reader, writer = os.pipe()
        async with running(tmp_path) as node:
            with os.fdopen(reader) as file:
                os.write(writer, b'{"price": 1}\n\n{"pri')
                task = asyncio.create_task(publish._send_events(options(node), EventLines(file)))
                for number, text in ((1, b'ce": 2}\n'), (2, b'{"price": 3}\r\n{"price": 4}')):
                    while node.totals()["events_in"] < number:
                        await asyncio.sleep(0.01)
                    os.write(writer, text)
                while node.totals()["events_in"] < 3:
                    await asyncio.sleep(0.01)
                os.close(writer)
                await task
                assert node.totals()["events_in"] == 4

    run(scenario())
    assert capsys.readouterr().out == "4 published\n"


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thatch.cli.event_lines.LINE_BYTES_MAX", 1_000)
    with pytest.raises(CallerError, match="line 1: longer than 1,000 bytes"), open("/dev/zero", "rb") as zeros:
        EventLines(zeros)


def test_the_loss_of_the_broker_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ""

    async def until(text: str) -> None:
        nonlocal said
        while text not in said:
            await asyncio.sleep(0.01)
            said += capsys.readouterr().err

    async def scenario() -> None:
        client = Listen(port=free_port())
        async with running(tmp_path, client=client) as node:
            task = asyncio.create_task(_print_events(options(node, clause="TRUE", durable=None, count=None)))
            await until("settled")
        await until(f"thatch: lost the broker at {url(node)}: trying again\n")
        async with running(tmp_path, client=client):
            await until(f"thatch: connected again to {url(node)}\n")
            task.cancel()
            await asyncio.wait([task])

    run(scenario())


def test_what_was_not_acknowledged_is_not_said_to_be_refused() -> None:
    async def scenario() -> None:
        so_far, loop = publish._Published(), asyncio.get_running_loop()
        for at, error in enumerate((None, TimedOut("an answer", 10.0))):
            outcome: asyncio.Future[str] = loop.create_future()
            so_far.add(publish._Sent(f"line {at}", {}, outcome))
            if error is None:
                outcome.set_result("id")
            else:
                outcome.set_exception(error)
        so_far.collect()
        assert publish._problem(so_far, []) == (
            "1 event was not acknowledged, and may be published all the same: waited 10 seconds for an answer; "
            "1 published"
        )

    run(scenario())


def test_a_mistake_is_one_document_in_json(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", '{"price": 5}', '{"price": "x"}', "--json", "--url", broker.url]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["published"] == 1 and answer["refused"] == ["event 2: attribute 'price': 'x' is not a double"]
    assert answer["error"] == "event 2: attribute 'price': 'x' is not a double; 1 published before it"


def test_a_key_that_is_given_twice_is_refused_wherever_events_are_read(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = '{"price": 1, "price": 2}'
    assert main(["publish", twice, "--url", broker.url]) == 2
    assert "event 1: the key 'price' is given twice" in capsys.readouterr().err
    assert broker.post(twice.encode()) == (400, {"error": "the body: the key 'price' is given twice"})
    assert broker.post(f'[{{"symbol": "a:b"}}, {twice}]'.encode())[0] == 400


class Full(io.StringIO):
    """A stream over a disk that is full."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fileno(self) -> int:
        return -1


def test_a_standard_output_that_is_full_is_told_from_other_files() -> None:
    with pytest.raises(OutputError, match=r"^standard output: no space left on device$"):
        print("x", file=_Output(Full()))
    print("what cannot be said is no error", file=_Errors(Full()))
    print("nor what nobody hears", file=_Errors(None))
