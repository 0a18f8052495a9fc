"""Every cell of the table of states, on a real broker: what it says is what happens, and the drawing shows it."""

from __future__ import annotations

from typing import Any

import pytest
from link_states import PAGE, PICTURE, page, picture

from helpers.broker_bench import NOTHING, SESSION, SPACE, Bench
from thatch.broker import Broker, Policy, Settings
from thatch.broker.link_states import INPUTS, STEPS, LinkAction, LinkInput, LinkState, LinkStep
from thatch.protocol import messages
from thatch.protocol.messages import (
    Accepted,
    Deliver,
    Digest,
    Effect,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Publish,
    Reject,
    Send,
    Sequenced,
    Settled,
    Subscribe,
    UnknownKind,
    seq_of,
)
from thatch.protocol.versions import VERSION_MAX

CELLS = [
    (state, input)
    for state in LinkState
    for input in LinkInput
    if input is not LinkInput.LISTED or state is LinkState.LISTING  # no message: it follows from one
]


def bench_in(state: LinkState) -> Bench:
    """A broker with a client ann that wants everything, and a neighbour B2 whose link is in this state."""
    settings = Settings("subscriptions", Policy(None))
    bench = Bench(broker=Broker("B1", SPACE, settings, page_characters=1)).client("ann")
    for id in ("all", "more", "most"):
        bench.says("ann", Subscribe, id, "x >= 0")
    bench.counts["B2"] = 0
    bench.handle(LinkUp(1), "B2")
    if state in (LinkState.MET, LinkState.LISTING, LinkState.SYNCED):
        text = bench.broker.space.to_json()
        bench.handle(Hello("B2", SESSION, text, members=("B2",), version_max=VERSION_MAX), "B2")
    if state in (LinkState.LISTING, LinkState.SYNCED):
        bench.says("B2", Digest, 1, *NOTHING)
    for _ in range(2 if state is LinkState.SYNCED else 0):
        bench.handle(page_accepted(bench), "B2")
    if state is LinkState.DOWN:
        bench.handle(LinkDown(), "B2")
    assert bench.broker.links["B2"].state is state
    return bench


def page_accepted(bench: Bench) -> Message:
    """By B2, the last one that it was sent."""
    link = bench.broker.links["B2"]
    return Accepted(seq_of(link.session, link.sent_count))


def message_of(bench: Bench, input: LinkInput) -> Message:
    link = bench.broker.links["B2"]
    seq = seq_of(SESSION, bench.counts["B2"] + 1)
    found: dict[LinkInput, Message] = {
        LinkInput.LINK_UP: LinkUp(2),
        LinkInput.LINK_DOWN: LinkDown(),
        LinkInput.HELLO: Hello(
            "B2", SESSION, bench.broker.space.to_json(), members=("B2", "B3"), version_max=VERSION_MAX
        ),
        LinkInput.DIGEST: Digest(seq, 1, *NOTHING),
        LinkInput.ACCEPTED: page_accepted(bench),
        LinkInput.LISTED: page_accepted(bench),
        LinkInput.NUMBERED: Subscribe(seq, "B2/bob/s", "x < 5"),
        LinkInput.SETTLED: Settled(seq_of(link.session, link.sent_count)),
        LinkInput.PUBLISH: Publish("bob:1", {"x": 3}),
        LinkInput.FAULT: UnknownKind(1, "Odd"),
    }
    return found[input]


def kinds(effects: list[Effect]) -> list[str]:
    """What the peer is sent, and other effects."""
    return [type(each.message).__name__ if isinstance(each, Send) else type(each).__name__ for each in effects]


@pytest.mark.parametrize(("state", "input"), CELLS, ids=lambda each: each.value)
def test_each_cell_is_what_a_broker_does(state: LinkState, input: LinkInput) -> None:
    bench, step = bench_in(state), STEPS[state][input]
    link = bench.broker.links["B2"]
    if input is LinkInput.LISTED:
        bench.handle(page_accepted(bench), "B2")
    settled, members = link.settled, link.members
    effects = bench.handle(message_of(bench, input), "B2")
    assert link.state is step.next
    found: dict[LinkAction, bool] = {
        LinkAction.CONNECT: kinds(effects) == ["Hello"] and link.session == 2,
        LinkAction.END: effects == [],
        LinkAction.MEET: "Digest" in kinds(effects),
        LinkAction.NOTE: "Digest" not in kinds(effects) and link.members != members,
        LinkAction.LIST: [each for each in kinds(effects) if each != "Persist"][:2] == ["Grow", "Page"],
        LinkAction.GO_ON: kinds(effects)[:1] == ["Page"],
        LinkAction.SYNC: kinds(effects)[:1] == ["Synced"],
        LinkAction.TAKE: any(isinstance(each, Deliver) for each in effects)
        or "Persist" in kinds(effects)
        or link.settled > settled,
        LinkAction.HANG_UP: any(isinstance(each, Reject) and each.close for each in effects),
        LinkAction.IGNORE: effects == [] and link.settled == settled and link.members == members,
    }
    assert found[step.action], (step, effects)


def test_the_table_is_whole() -> None:
    """Every state has every input, each can be reached, and every numbered message is an input."""
    assert all(row.keys() == set(LinkInput) for row in STEPS.values()) and list(STEPS) == list(LinkState)
    reached, waiting = {LinkState.DOWN}, [LinkState.DOWN]
    while waiting:
        for step in STEPS[waiting.pop()].values():
            if step.next not in reached:
                reached.add(step.next)
                waiting.append(step.next)
    assert reached == set(LinkState)
    numbered = {each for each in vars(messages).values() if isinstance(each, type) and issubclass(each, Sequenced)} - {
        Sequenced
    }
    assert numbered <= INPUTS.keys()


def test_the_drawing_is_of_the_present_table() -> None:
    assert PICTURE.read_text() == picture(STEPS), "python scripts/link_states.py draws it again"
    assert PAGE.read_text() == page(PAGE.read_text(), STEPS), "python scripts/link_states.py writes it again"


def test_an_outdated_drawing_is_found() -> None:
    changed: dict[LinkState, Any] = {state: dict(row) for state, row in STEPS.items()}
    changed[LinkState.SYNCED][LinkInput.HELLO] = LinkStep(LinkState.MET, LinkAction.NOTE)
    assert picture(changed) != picture(STEPS) and page(PAGE.read_text(), changed) != page(PAGE.read_text(), STEPS)
