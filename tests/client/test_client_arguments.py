"""Arguments of a type that a broker would hang up on are refused before anything is sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from helpers.raw_peers import RawPeer, playing, run, welcome
from thatch import CallerError
from thatch.client.blocking import connect_blocking
from thatch.client.client import connect


class Opaque:
    def __repr__(self) -> str:
        return "opaque"


WRONG: list[tuple[Callable[[Any], Coroutine[Any, Any, Any]], str]] = [
    (lambda ann: ann.publish('{"price": 3}'), "an event is a mapping of attributes to values, not '{"),
    (lambda ann: ann.publish({"price": 3.0}, "text"), "the payload of an event is bytes, not 'text'"),
    (lambda ann: ann.subscribe("TRUE", durable=True), "durable, the id of a subscription, is a text, not True"),
    (lambda ann: ann.subscribe("TRUE", 5), "the id of a subscription is a text, not 5"),
    (lambda ann: ann.subscribe(True), "a clause is a text, not True"),
    (lambda ann: ann.subscribe_many({"a": None}), "a clause is a text, not None"),
    (lambda ann: ann.subscribe_many({1: "TRUE"}), "the id of a subscription is a text, not 1"),
    (lambda ann: ann.subscribe_many(["TRUE"]), "{id: clause, …}"),
    (lambda ann: ann.advertise(None), "a clause is a text, not None"),
    (lambda ann: ann.advertise("TRUE", 5), "the id of an advertisement is a text, not 5"),
    (lambda ann: ann.publish({5: 5}), "names of attributes are texts, not 5"),
    (lambda ann: ann.publish({"price": "\udcff"}), "attribute 'price': the text is not valid Unicode"),
    (lambda ann: ann.publish({"\udcff": 5}), "attribute '\\udcff': the text is not valid Unicode"),
    (lambda ann: ann.publish({"price": 1.0, "x": {(1, 2): 3}}), "attribute 'x': {(1, 2): 3} is not a value of an"),
    (lambda ann: ann.publish({"price": Opaque()}), "attribute 'price': opaque is not a value of an attribute"),
    (lambda ann: ann.unadvertise("nope"), "no advertisement 'nope': `advertise` returns the id"),
    (lambda ann: ann.unadvertise(None), "no advertisement None"),
    (lambda ann: ann.unsubscribe("nope"), "a subscription is what `subscribe` returned, not 'nope'"),
    (lambda ann: ann.unsubscribe(None), "a subscription is what `subscribe` returned, not None"),
    (lambda ann: ann.replace("nope", "TRUE"), "a subscription is what `subscribe` returned, not 'nope'"),
    (lambda ann: ann.advertise("TRUE", timeout_seconds="x"), "timeout_seconds is a number of seconds"),
    (lambda ann: ann.subscribe("TRUE", timeout_seconds=float("nan")), "or None for no limit, not nan"),
    (lambda ann: ann.publish({"price": 1.0}, timeout_seconds=-1), "at least 0, or None for no limit, not -1"),
]


def test_arguments_of_another_type_are_refused_before_they_are_sent() -> None:
    said: list[Any] = []

    async def play(peer: RawPeer) -> None:
        await welcome(peer)
        said.append(await peer.read("Publish"))
        async for _ in peer.socket:
            pass

    async def scenario() -> None:
        async with playing(play) as url, await connect(url, "ann") as ann:
            for call, reason in WRONG:
                with pytest.raises(CallerError, match=re.escape(reason)):
                    await call(ann)
            assert ann.is_connected and ann.connections == 1
            await ann.post({"price": 3.0})
            while not said:
                await asyncio.sleep(0.005)
            assert said[0][2] == {"price": 3.0}

    run(scenario())


def test_the_name_of_a_client_is_a_text() -> None:
    with pytest.raises(CallerError, match="the name of a client is a text, not 5"):
        connect_blocking("ws://127.0.0.1:7878", name=5)  # type: ignore[arg-type]
