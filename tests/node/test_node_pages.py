"""The pages of a node, asked with curl as the documents say, and asked wrongly."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from helpers.paths import ROOT, SOURCE
from thatch.node.config import Config, Listen
from thatch.node.server import Node

SPACE = "price double not null 0..1000, symbol string"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), SOURCE / "node" / "http.py"]
SECONDS = 20.0


def curl_examples() -> list[str]:
    """Each command with curl in the documents, as it would be pasted."""
    found: dict[str, None] = {}
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for command in re.findall(r"^    (curl (?:.*\\\n)*.*)$", text, re.MULTILINE):
            found[command] = None
        for command in re.findall(r"`(curl [^`]+)`", text):
            found[command] = None
    return list(found)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Node]:
    node = Node(Config(name="B1", space=SPACE, store=str(folder / "B1.thatch"), client=Listen(), overlay=Listen()))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def pasted(command: str, node: Node, until: bytes = b"") -> str:
    """What a shell prints for a command at this node; of one that goes on, the output up to `until`."""
    shell = await asyncio.create_subprocess_shell(
        command.replace("localhost:7878", f"127.0.0.1:{node.client_port}").replace("curl ", "exec curl -sS ", 1),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert shell.stdout is not None
    async with asyncio.timeout(SECONDS):
        if not until:
            said = await shell.stdout.read()
        else:
            said = await shell.stdout.readuntil(until)
            shell.kill()
        await shell.wait()
    return said.decode()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_with_curl_work_as_pasted(tmp_path: Path) -> None:
    examples = curl_examples()
    assert any("AND" in each for each in examples), "one has a clause with spaces"
    assert any("\\\n" in each for each in examples), "one goes over two lines"

    async def scenario() -> None:
        async with running(tmp_path) as node:
            for command in examples:
                if "/subscribe" in command:
                    assert "event: settled" in await pasted(command, node, b"event: settled"), command
                elif "/events" in command:
                    assert json.loads(await pasted(command, node))["published"] == 1, command
                else:
                    assert "B1" in await pasted(command, node), command

    asyncio.run(scenario())


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_what_is_posted_with_curl_is_read_with_curl(tmp_path: Path) -> None:
    async def scenario() -> None:
        reading = next(each for each in curl_examples() if "--data-urlencode" in each)
        writing = next(each for each in curl_examples() if each.startswith("curl -d"))
        async with running(tmp_path) as node:
            read = asyncio.create_task(pasted(reading, node, b'data: {"id"'))
            while not node.driver.broker.table_size():
                await asyncio.sleep(0.01)
            await pasted(writing, node)
            assert "event: settled" in await read

    asyncio.run(scenario())


PAGES = {
    "/event": "no page '/event' (did you mean '/events'?)",
    "/nonsense": "no page '/nonsense'; there are /connect, /events, ",
    "/events": "/events takes POST, not GET",
    "/connect": "/connect is for programs that speak WebSocket",
    "/subscribe": "where is missing: write where=TRUE for everything",
    "/subscribe?were=price": "no parameter 'were' (did you mean 'where'?)",
    "/subscribe?where=prise%3C5": "no attribute 'prise' (did you mean 'price'?)",
}
BODIES = {
    "{bad": "the body is not what is expected in JSON: line 1, column 2: a name in double quotes is missing",
    "7": "an object or a list is expected, not 7",
    '{"prise": 1}': "(did you mean 'price'?)",
}


def test_wrong_requests_are_answered_in_words(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as node, aiohttp.ClientSession(f"http://127.0.0.1:{node.client_port}") as session:
            for page, reason in PAGES.items():
                async with session.get(URL(page, encoded=True)) as response:
                    assert response.status in (400, 404, 405) and reason in (await response.json())["error"], page
            for body, reason in BODIES.items():
                async with session.post("/events", data=body) as response:
                    answer = await response.text()
                    assert response.status == 400 and reason in answer and "Expected" not in answer, answer

    asyncio.run(scenario())
