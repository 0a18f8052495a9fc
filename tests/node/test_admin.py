"""The operator's door: who may use it, what it bounds, and what its commands do to a broker that runs."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from helpers.node_process import BrokerProcess, chain
from helpers.raw_peers import run, running
from thatch.cli.main import main
from thatch.client.client import connect
from thatch.node.admin import SERVED_MAX, bound
from thatch.node.asking import REQUEST_BYTES_MAX, send, socket_beside


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    before = os.umask(0)
    made = BrokerProcess("B1", tmp_path_factory.mktemp("broker")).start()
    try:
        yield made
        assert made.stop() == 0 and not socket_of(made).exists()
    finally:
        made.kill()
        os.umask(before)


def socket_of(broker: BrokerProcess) -> Path:
    return socket_beside(broker.store)


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    """What a command prints as JSON."""
    assert main(["admin", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_only_the_brokers_own_user_may_use_the_socket(tmp_path: Path) -> None:
    """Whatever the umask is, and from the first moment: nobody can connect before the mode is right."""
    before = os.umask(0)
    try:
        listener = bound(tmp_path / "s")
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
        assert os.umask(0) == 0, "the umask is what it was"
        listener.close()
        bound(tmp_path / "s").close()  # what is left behind is replaced
        long = tmp_path / ("x" * 100) / ("y" * 60)
        long.parent.mkdir()
        bound(long).close()
        assert stat.S_IMODE(long.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_status_and_links(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(socket_of(broker))
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    state = said(capsys, "status", "--socket", path)
    assert (state["name"], state["ready"], state["store"]["state"]) == ("B1", True, "ok")
    assert state["store"]["file"] == str(broker.store) and state["store"]["bytes"] > 4096
    assert said(capsys, "links", "--socket", path) == []
    assert main(["admin", "status", "--socket", path]) == 0
    shown = capsys.readouterr().out
    assert "B1, ready, up " in shown and str(broker.store) in shown and "\x1b" not in shown


def test_a_neighbour_that_is_away_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brokers = chain(tmp_path, ("B1", "B2"))
    try:
        path = str(socket_of(brokers[1]))

        def links_until(state: str, status: int) -> Any:
            for _ in range(200):
                if main(["admin", "links", "--socket", path, "--json"]) == status:
                    (link,) = json.loads(capsys.readouterr().out)
                    if link["state"] == state:
                        return link
                capsys.readouterr()
            raise AssertionError(state)

        assert links_until("up", 0)["dialled"] == brokers[0].overlay
        brokers[0].kill()
        assert links_until("down", 1)["name"] == "B1"
        assert main(["admin", "links", "--socket", path]) == 1
        assert "B1         down" in capsys.readouterr().out
    finally:
        for broker in brokers:
            broker.kill()


def test_the_only_socket_of_the_folder_is_meant(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(broker.folder)
    assert said(capsys, "status")["name"] == "B1"
    (broker.folder / "B9.thatch.sock").touch()
    assert main(["admin", "status"]) == 2
    assert "several sockets are here, B1.thatch.sock, B9.thatch.sock: give --socket PATH" in capsys.readouterr().err
    (broker.folder / "B9.thatch.sock").unlink()
    monkeypatch.chdir("/")
    assert main(["admin", "status"]) == 2
    assert "no *.sock is in this folder" in capsys.readouterr().err


def test_what_no_broker_answers_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bound(tmp_path / "dead.sock").close()
    (tmp_path / "text.sock").write_text("hello")
    for name, reason in (("gone.sock", "no such socket"), ("dead.sock", "no broker runs there"), ("text.sock", "")):
        assert main(["admin", "status", "--socket", str(tmp_path / name)]) == 2
        assert reason in capsys.readouterr().err


def asked(path: Path, data: bytes) -> dict[str, Any]:
    """What the door answers to bytes."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        send(connection, data)
        with connection.makefile("rb") as lines:
            answer: dict[str, Any] = json.loads(lines.readline())
            return answer


def test_requests_are_bounded(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    path = socket_of(broker)
    for data in (b"hello\n", b'{"command": "dance"}\n', b'{"command": "status", "loud": true}\n', b"\xff\n", b"[]\n"):
        answer = asked(path, data)
        assert answer["code"] == "protocol" and "not a request that this version knows" in answer["error"]
    with suppress(ConnectionError):  # it did not want to read the rest
        assert "one line of at most 65,536 bytes" in asked(path, b"x" * (REQUEST_BYTES_MAX + 10))["error"]
    idle = [socket.socket(socket.AF_UNIX) for _ in range(SERVED_MAX)]
    for each in idle:
        each.connect(str(path))
    assert asked(path, b'{"command": "status"}\n')["code"] == "later"
    for each in idle:
        each.close()
    for _ in range(100):  # until it has noticed that they are gone
        if asked(path, b'{"command": "status"}\n').get("code") != "later":
            break
    assert said(capsys, "status", "--socket", str(path))["ready"]


def test_an_answer_before_the_request_is_read_is_an_answer() -> None:
    """A broker that is busy hangs up at once, so that the request cannot be sent any more."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours:
        theirs.sendall(b"busy\n")
        theirs.close()
        send(ours, b"{}\n")
        assert ours.recv(100) == b"busy\n"


def test_a_file_that_cannot_be_a_backup_is_refused(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    path = ["--socket", str(socket_of(broker))]
    for file, reason in (
        (broker.folder / "nowhere" / "copy", "its folder is not there"),
        (broker.folder, "is a folder"),
        (broker.store, "a name that the store itself may use"),
        (broker.folder / "B1.thatch-wal", "a name that the store itself may use"),
        (broker.log, "exists already: choose another path, or give --overwrite"),
    ):
        assert main(["admin", "backup", str(file), *path]) == 2
        assert reason in capsys.readouterr().err


def test_a_backup_replaces_backups_only(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """Also a pipe, which would hold up the broker for ever if it opened it."""
    folder = broker.folder / "others"
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to("nowhere")
    (folder / "precious.txt").write_text("precious")
    for name, reason in (
        ("fifo", "is not a regular file: it is a named pipe"),
        ("link", "is not a regular file: it is a symbolic link"),
        ("precious.txt", "was not written by Thatch (it is no backup): remove it, or choose another path"),
    ):
        file = folder / name
        assert main(["admin", "backup", str(file), "--overwrite", "--socket", str(socket_of(broker))]) == 2
        assert f"{file} {reason}" in capsys.readouterr().err
    assert main(["admin", "backup", str(folder / "link"), "--socket", str(socket_of(broker))]) == 2
    assert (folder / "link").is_symlink() and (folder / "precious.txt").read_text() == "precious"


def test_what_is_no_socket_is_said_to_be_none(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    for path, reason in (
        (broker.store, f"is not a socket (did you mean {socket_of(broker)}?)"),
        (broker.folder / "B1.toml", "is not a socket; a broker that runs has one beside its store"),
        (broker.folder, "is not a socket; a broker"),
    ):
        assert main(["admin", "status", "--socket", str(path)]) == 2
        assert f"{path} {reason}" in capsys.readouterr().err


def test_backup_and_restore(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """What came before the copy is there again, and what came after it is not; a running broker keeps its store."""
    copy = broker.folder / "copy"

    async def publish(*numbers: int) -> None:
        async with await connect(broker.url, "ann") as ann, await connect(broker.url, "bob") as bob:
            await ann.advertise("TRUE")
            await bob.subscribe("TRUE", durable="kept")
            await asyncio.gather(*[await ann.post({"price": 1.0, "number": each}) for each in numbers])

    async def kept() -> list[int]:
        async with await connect(broker.url, "bob") as bob:
            queue = await bob.subscribe("TRUE", durable="kept")
            numbers: list[int] = []
            try:
                while True:
                    numbers.append((await queue.next(10.0 if len(numbers) < 50 else 0.2)).event["number"])
            except TimeoutError:
                return numbers

    run(publish(*range(50)))
    summary = said(capsys, "backup", str(copy), "--socket", str(socket_of(broker)))
    assert summary["broker"] == "B1" and summary["rows"]["events"] == 50
    assert main(["admin", "backup", str(copy), "--overwrite", "--socket", str(socket_of(broker))]) == 0
    assert "broker B1 of " in capsys.readouterr().out
    run(publish(*range(50, 60)))
    assert main(["admin", "restore", str(copy), "--store", str(broker.store)]) == 2
    assert f"store {broker.store}: broker B1 is running on it: stop it first" in capsys.readouterr().err
    broker.kill()
    assert said(capsys, "restore", str(copy), "--store", str(broker.store))["rows"]["events"] == 50
    broker.start()
    got: list[int] = []
    run(_into(got, kept()))
    assert sorted(got) == list(range(50))


async def _into(got: list[int], work: Any) -> None:
    got += await work


def test_a_request_that_is_given_up_ends(tmp_path: Path) -> None:
    """Nobody waits for the answer: the broker stops at once all the same."""

    async def scenario() -> None:
        async with running(tmp_path) as node:
            _, writer = await asyncio.open_unix_connection(str(node.admin.path))
            writer.write(b'{"command": "backup", "file": "%s"}\n' % bytes(tmp_path / "copy"))
            writer.close()
            another = await asyncio.open_unix_connection(str(node.admin.path))
            assert not node.is_over.is_set() and another

    run(scenario())


def test_help_has_every_action(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("status", "links", "backup", "restore"):
        with pytest.raises(SystemExit) as ended:
            main(["admin", action, "--help"])
        shown = capsys.readouterr().out
        assert ended.value.code == 0 and f"example: thatch admin {action}" in shown and "--json" in shown
