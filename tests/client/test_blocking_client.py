"""The blocking client, and the commands of the terminal, with a broker as a process."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.node_process import SPACE, BrokerProcess, is_soak
from thatch.cli.main import main
from thatch.cli.subscribe import _print_events
from thatch.client.blocking import connect_blocking
from thatch.errors import CallerError, Unavailable
from thatch.node.config import RENAMED, read


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess("B1", tmp_path_factory.mktemp("broker")).start()
    yield process
    assert process.stop() == 0
    assert "has stopped" in process.log.read_text()


def test_each_call_waits(broker: BrokerProcess) -> None:
    with connect_blocking(broker.url, "ann") as ann:
        alerts = ann.subscribe("price < 20", durable="alerts")
        advertised = ann.advertise("price < 500")
        ids = [ann.publish({"price": float(price)}) for price in (5, 50, 6)]
        assert [alerts.next(5).id, alerts.next(5).id] == [ids[0], ids[2]]
        ann.replace(alerts, "price > 20")
        ann.publish({"price": 30.0}, b"more")
        events = iter(alerts)
        assert next(events).payload == b"more"
        alerts.done()
        with pytest.raises(TimeoutError):
            alerts.next(0.05)
        with pytest.raises(CallerError, match="outside what"):
            ann.publish({"price": 900.0})
        ann.flush()
        ann.unadvertise(advertised)
        ann.unsubscribe(alerts)
        assert list(events) == []
    with pytest.raises(Unavailable):
        connect_blocking("ws://127.0.0.1:1", timeout_seconds=0.2)


def test_from_the_terminal(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "thatch.cli", "subscribe", "price < 20", "--url", broker.url, "--count", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stderr is not None and reader.stdout is not None
        assert "settled" in reader.stderr.readline()
        assert (
            main(["publish", "--url", broker.url, '{"price": 5, "symbol": "A"}', '{"price": 50}', '{"price": 6}']) == 0
        )
        assert capsys.readouterr().out == "3 published\n"
        lines = [json.loads(line) for line in reader.stdout]
    assert [line["event"] for line in lines] == [{"price": 5, "symbol": "A"}, {"price": 6}]
    assert main(["publish", "--url", broker.url, '{"prize": 5}']) == 2
    assert "attribute 'prize' is not in the space" in capsys.readouterr().err


def test_a_command_waits_as_long_as_it_is_told_and_says_for_what(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess
) -> None:
    assert main(["publish", "{}", "--url", "ws://127.0.0.1:1", "--timeout", "0.05"]) == 2
    assert "ws://127.0.0.1:1 within 0.05 seconds" in capsys.readouterr().err
    for wrong in ("0", "soon", "inf", "nan", "-1"):
        with pytest.raises(SystemExit):
            main(["subscribe", "TRUE", "--url", broker.url, "--timeout", wrong])
        assert f"a number of seconds above 0 is expected, not '{wrong}'" in capsys.readouterr().err
    assert main(["subscribe", "TRUE", "--url", broker.url, "--timeout", "1e-6", "--count", "1"]) == 2
    assert "within 1e-06 seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"price": 5', "line 2 is not an object in JSON: line 1, column 12: it ends too early; 1 published before it"),
        ('{"price": "x"}', "line 2: attribute 'price': 'x' is not a double; 1 published before it"),
        ('{"prize": 5}', "1 event was refused: line 2: attribute 'prize' is not in the space"),
        ('{"price": 50}', "line 2: outside --advertise 'price < 20': price is 50"),
    ],
)
def test_one_of_many_events_is_bad(
    broker: BrokerProcess,
    line: str,
    reason: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(['{"price": 5}', line, *['{"price": 6}'] * 30])))
    assert main(["publish", "--url", broker.url, "--advertise", "price < 20"]) == 2
    captured = capsys.readouterr()
    assert reason in captured.err, captured.err
    assert captured.out == ("31 published\n" if "refused" in captured.err else "1 published\n")


def test_events_of_arguments_leave_standard_input_alone(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(["publish", '{"price": 5}', "--url", broker.url]) == 0
    assert capsys.readouterr().out == "1 published\n"


def test_a_clause_that_no_event_can_match_is_warned_of(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    async def said() -> str:
        clause = "price > 5 AND price < 3"
        options = argparse.Namespace(url=broker.url, name=None, clause=clause, durable=None, count=None, timeout=5.0)
        task, text = asyncio.create_task(_print_events(options)), ""
        while "settled" not in text and not task.done():
            await asyncio.sleep(0.01)
            text += capsys.readouterr().err
        task.cancel()
        return text

    assert "thatch: no event can match this clause: 5 is above 3\n" in asyncio.run(said())


def test_waiting_for_a_broker_is_said_in_a_pipe_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(url: str, name: str | None, seconds: float) -> None:
        await asyncio.sleep(0.25)
        raise Unavailable("no broker")

    monkeypatch.setattr("thatch.client.client.connect", connect)
    assert main(["publish", '{"price": 5}', "--url", "ws://127.0.0.1:1"]) == 2
    assert "waiting for a broker at ws://127.0.0.1:1 …" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--name", "B/1", "--space", SPACE], "text without '/'"),
        (["--name", "B1", "--space", "price colour"], "expected a type"),
        (["--name", "B1", "--space", SPACE, "--listen", "0.0.0.0:1"], "not a loopback address"),
        (["--name", "B1", "--space", SPACE, "--listen", "here"], "HOST:PORT"),
        (["--name", "B1", "--space", SPACE, "--neighbour", "B2"], "NAME=URL"),
        (["--name", "B1", "--space", SPACE, "--neighbour", "B2=there"], "a URL such as"),
        (["--name", "B1", "--space", SPACE, "--routing", "none"], "routing is one of"),
    ],
)
def test_settings_that_cannot_be(flags: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", *flags, "--print-config"]) == 2
    assert reason in capsys.readouterr().err


def test_settings_are_printed_as_a_file_that_reads_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--name", "B1", "--space", SPACE, "--neighbour", "B 2=ws://127.0.0.1:1", "--log", "json"]
    assert main(["broker", *flags, "--print-config"]) == 0
    text = capsys.readouterr().out
    file = tmp_path / "b.toml"
    file.write_text(text.replace('cover = "exact"', 'cover = "none"'))
    assert main(["broker", str(file), "--print-config"]) == 0
    assert capsys.readouterr().out == text.replace('cover = "exact"', 'cover = "none"')
    file.write_text("flow = { slow_client = 'wait' }")
    assert main(["broker", str(file), *flags, "--print-config"]) == 2
    assert "slow_client" in capsys.readouterr().err


HEAD = f"name = 'B1'\nspace = '{SPACE}'\n"


def as_toml(key: str) -> str:
    """A file with one setting, by its dotted key."""
    *tables, name = key.replace("*", "B2").split(".")
    return f"[{'.'.join(tables)}]\n{name} = 1\n" if tables else f"[{name}]\n"


@pytest.mark.parametrize("old", RENAMED)
def test_a_key_of_an_earlier_version_is_refused_with_its_new_name(
    old: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "b.toml"
    file.write_text(HEAD + as_toml(old))
    assert main(["broker", str(file), "--print-config"]) == 2
    wanted = f"{old} is now {RENAMED[old]}".replace("*", "B2")
    assert capsys.readouterr().err == f"thatch: {file}: settings have new names: {wanted}\n"


def test_all_keys_of_an_earlier_version_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "b.toml"
    file.write_text(HEAD + "[keep]\nqueue_bytes = 5\n[timing]\nlinger = 1\n[flow]\ncontrol_bytes_max = 5\n")
    assert main(["broker", str(file), "--print-config"]) == 2
    err = capsys.readouterr().err
    assert "keep is now retention; keep.queue_bytes is now retention.queue_bytes_max;" in err
    assert "timing.linger is now timing.linger_seconds" in err and "control_bytes_max is now" not in err


def test_how_a_broker_forwards_is_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, again = tmp_path / "b.toml", tmp_path / "again.toml"
    for text in (
        "[policy]\ntheta = 0.9\n[links.'B 2']\ncover = 'none'\n"
        "[pruning]\nreplacements_per_second_max = 5.0\nhistory_seconds = 60\n",
        "[cells]\nattributes = ['price']\n",
    ):
        file.write_text(HEAD + text)
        assert main(["broker", str(file), "--print-config"]) == 0
        again.write_text(capsys.readouterr().out)
        assert read(again, {}) == read(file, {})
        settings = read(file, {}).settings()
        if settings.cells is None:
            assert settings.replacements_per_second_max == 5.0
            assert (settings.history_seconds, settings.idle_seconds) == (60.0, 30.0)
            assert (settings.policy_of("B 2").cover, settings.policy_of("B 3").theta) == (None, 0.9)
        else:
            assert settings.cells.attributes == ("price",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[cells]\nattributes = ['prize']", "prize"),
        ("[cells]\nattributes = ['price']\n[policy]\ntheta = 0.5", "theta or cells"),
        ("[pruning]\nreplacements_per_second_max = -1.0", "replacements_per_second_max"),
        ("[links.B2]\ncover = 'best'", "no cover engine 'best'"),
        ("links = 3", "links is an object, not 3"),
    ],
)
def test_policies_that_cannot_be(text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.toml").write_text(HEAD + text)
    assert main(["broker", str(tmp_path / "b.toml"), "--print-config"]) == 2
    assert reason in capsys.readouterr().err


def test_a_store_of_another_broker_is_refused(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--name", "B2", "--space", SPACE, "--listen", "127.0.0.1:0", "--overlay", "127.0.0.1:0"]
    assert main(["broker", *flags, "--store", str(broker.store)]) == 2
    assert "another broker uses it" in capsys.readouterr().err


@pytest.mark.skipif(not is_soak(), reason="takes ten seconds: the kills in test_node_kill.py show the same")
def test_the_demo_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--network"]) == 0
    assert "\nNothing was lost.\nGo on: " in capsys.readouterr().out


def test_a_port_that_is_taken(broker: BrokerProcess, tmp_path: Path) -> None:
    command = ["broker", "--name", "B2", "--space", SPACE, "--store", str(tmp_path / "s")]
    command += ["--listen", f"127.0.0.1:{broker.client_port}", "--overlay", "127.0.0.1:0"]
    done = subprocess.run([sys.executable, "-m", "thatch.cli", *command], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and f"cannot listen on 127.0.0.1:{broker.client_port}" in done.stderr
