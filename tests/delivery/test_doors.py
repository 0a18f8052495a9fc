"""Who may come: judged by role and name alone, without a socket, a store or a clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from thatch.delivery.doors import NOTED_SECONDS, Doors, Greeting, Identity, Refusals, check_rival
from thatch.errors import ThatchError
from thatch.protocol.messages import Hello, Message, Settled
from thatch.protocol.wire import Received, Resume


def doors() -> Doors:
    return Doors("B1", {"B2": "ws://127.0.0.1:1"}, ("B3",), {"B4"})


def hello(name: str, is_client: bool = False, **more: Any) -> Hello:
    return Hello(name, 1, "price double", is_client, **more)


RESUME = Resume("store", "", 0)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ThatchError) as caught:
        call()
    return caught.value.code


def test_a_neighbour_is_expected_by_the_settings_or_by_an_operator() -> None:
    made = doors()
    assert made.expected == {"B2", "B3", "B4"}
    assert refusal(lambda: made.check_neighbour(hello("B5"))) == "unaccepted"
    made.admit("B5")
    assert made.check_neighbour(hello("B5")).name == "B5"
    for name in ("B2", "B3", "B5"):
        made.forget(name)  # what the settings say stays
    assert made.expected == {"B2", "B3", "B4"}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (hello("B3", is_client=True), "protocol"),
        (hello("B1"), "name"),
        (hello("@http"), "name"),
        (hello("B3@kept"), "name"),
        (hello("B3", version=9, version_max=9), "version"),
        (Settled(1), "protocol"),
        (RESUME, "protocol"),
    ],
)
def test_a_neighbour_of_another_role_or_name_is_refused(message: Message, code: str) -> None:
    assert refusal(lambda: Greeting(doors()).take(message)) == code


def test_who_was_dialled_is_who_answers() -> None:
    assert refusal(lambda: Greeting(doors(), "B2").take(hello("B3"))) == "name"


@pytest.mark.parametrize("name", ["B2", "B3", "B4"])
def test_a_client_cannot_have_the_name_of_a_neighbour(name: str) -> None:
    assert refusal(lambda: doors().check_client(hello(name, is_client=True), was_met=False)) == "name"
    assert refusal(lambda: doors().check_client(hello("ann", is_client=True), was_met=True)) == "name"
    assert doors().check_client(hello("ann", is_client=True), was_met=False).name == "ann"
    assert refusal(lambda: doors().check_client(hello("ann"), was_met=False)) == "protocol"


def test_a_greeting_is_whole_with_resume() -> None:
    greeting = Greeting(doors())
    assert greeting.take(hello("B3")) is None
    later = hello("B3", members_version=4)
    assert greeting.take(later) is None
    assert greeting.take(RESUME) == (later, RESUME)
    assert refusal(lambda: greeting.take(Received(1))) == "protocol"


def test_a_second_broker_of_a_name_is_refused() -> None:
    one, restarted = Identity("s", "life1"), Identity("s", "life2")
    check_rival("B3", one, one)  # over another connection
    check_rival("B3", Identity("s", ""), Identity("s", ""))  # before version 4
    for newcomer in (restarted, Identity("t", "life1"), Identity("t", "")):
        assert refusal(partial(check_rival, "B3", newcomer, one)) == "name"
    assert Identity.of(Resume("s", "", 0, {3: "c", 12: "l", 5: "e"})) == ("s", "l")


def test_the_log_has_a_line_a_minute_for_each_reason() -> None:
    refusals = Refusals()
    assert refusals.note("name", "x" * 1000, "no", 0.0) == 1
    assert [refusals.note("name", f"c{at}", "no", at / 100) for at in range(1000)] == [0] * 1000
    assert refusals.note("unaccepted", "c", "no", 10.0) == 1
    assert refusals.note("name", "d", "no", NOTED_SECONDS + 1) == 1001
    assert refusals.note("name", "d", "no", 5.0) == 1, "a clock that was set back does not silence it"
    assert refusals.by_code["name"].total == 1003 and set(refusals.by_code) == {"name", "unaccepted"}
