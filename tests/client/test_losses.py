"""A program hears what limits have cost its durable subscription, and acknowledges that as it does events."""

from __future__ import annotations

import asyncio

import pytest

from thatch.cli.subscribe import _print_lost
from thatch.client.subscription import AsyncSubscription, Mark
from thatch.protocol.messages import Publish
from thatch.protocol.wire import Lost


def lost(number: int) -> Lost:
    return Lost("k", number, 10, 1.7e9, 1.7e9 + 5, "B1", "B2")


def mark(number: int) -> Mark:
    return Mark(1, number, "life")


def test_a_loss_is_acknowledged_with_the_event_before_it() -> None:
    async def scenario() -> None:
        done: list[int] = []
        subscription = AsyncSubscription({"k": "TRUE"}, 2**20, lambda id, each: done.append(each.number))
        subscription.lose(lost(3), mark(3))
        assert done == [3], "nothing is before it"
        subscription.arrived(Publish("ann:1", {}), mark(4))
        subscription.lose(lost(5), mark(5))
        assert done == [3] and subscription.lost == 20 and [each.number for each in subscription.losses] == [3, 5]
        assert subscription.next_now() is not None
        subscription.lose(lost(6), mark(6))
        assert done == [3]
        subscription.done()
        assert done == [3, 6]

    asyncio.run(scenario())


def test_a_program_is_called_and_what_it_raises_is_its_own() -> None:
    async def scenario() -> None:
        done: list[int] = []
        heard: list[Lost] = []
        errors: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["exception"]))
        subscription = AsyncSubscription({"k": "TRUE"}, 2**20, lambda id, each: done.append(each.number))

        def on_lost(each: Lost) -> None:
            heard.append(each)
            raise ValueError("a mistake of the program")

        subscription.on_lost = on_lost
        subscription.lose(lost(1), mark(1))
        await asyncio.sleep(0)
        assert heard == [lost(1)] and done == [1] and [type(each) for each in errors] == [ValueError]

    asyncio.run(scenario())


def test_the_command_line_says_what_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    _print_lost(lost(1))
    _print_lost(Lost("k", 1, 3, 0.0, 0.0, "", ""))
    said = capsys.readouterr().err.splitlines()
    assert said[0] == (
        "thatch: up to 10 events lost to a limit: B1 kept them for B2; they had come there from "
        "2023-11-14T22:13:20+00:00 to 2023-11-14T22:13:25+00:00"
    )
    assert "several brokers kept them" in said[1]
