"""Stories: what a traced broker says it did, and why; that this is bounded, and changes nothing of what it does."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.broker_bench import SESSION, Bench
from thatch.broker import Broker, Settings
from thatch.broker.link_states import LinkState
from thatch.broker.stories import Stories
from thatch.errors import CallerError
from thatch.protocol.messages import (
    Advertise,
    Effect,
    LinkDown,
    Message,
    Publish,
    Subscribe,
    Unsubscribe,
    seq_of,
)
from thatch.sim.run import Run, draw_settings
from thatch.sim.script import draw


def traced(settings: Settings | None = None) -> Bench:
    """A broker with two clients and a neighbour whose publisher is known."""
    bench = Bench(settings or Settings()).client("ann").client("bob").settled_neighbour("B2")
    bench.says("B2", Advertise, "B2/p/a", "x < 50")
    bench.broker.start_tracing()
    return bench


def story_of(bench: Bench, id: str) -> list[str]:
    return [str(each) for each in bench.broker.story(id)]


def test_the_story_of_a_subscription() -> None:
    """Held back, and why; promoted, and why; with the times of the messages. docs/brokers.md shows it."""
    bench = traced()
    bench.now = 2.0
    bench.says("ann", Subscribe, "wide", "x < 20")
    bench.settles("B2")
    bench.now = 3.0
    bench.says("bob", Subscribe, "narrow", "x < 5")
    bench.now = 5.0
    bench.says("ann", Unsubscribe, "wide")
    assert story_of(bench, "B1/bob/narrow") == [
        "3.000 Subscribe 'narrow' of 'bob': x < 5",
        "3.000 'B1/bob/narrow' not sent to 'B2': it is covered by what was sent there: 'B1/ann/wide'",
        "3.000 accepted for 'bob': checked and recorded",
        "3.000 settled for 'bob': every broker on the way has what it needs",
        "5.000 'B1/bob/narrow' sent to 'B2', since Unsubscribe 'wide' of 'ann': nothing that was sent there covers it",
    ]
    assert story_of(bench, "B1/ann/wide") == [
        "2.000 Subscribe 'wide' of 'ann': x < 20",
        "2.000 'B1/ann/wide' sent to 'B2'",
        "2.000 accepted for 'ann': checked and recorded",
        "2.000 settled for 'ann': every broker on the way has what it needs",
        "5.000 Unsubscribe 'wide' of 'ann'",
        "5.000 accepted for 'ann': checked and recorded",
        "5.000 'B1/ann/wide' withdrawn from 'B2', since Unsubscribe 'wide' of 'ann': it left",
    ]


def test_the_story_of_an_event() -> None:
    bench = traced()
    bench.says("ann", Subscribe, "s", "x < 20")
    bench.says("B2", Subscribe, "B2/c/t", "x < 9")
    bench.says("bob", Advertise, "a", "x < 80")
    for number, x in enumerate((3, 30, 90)):
        bench.handle(Publish(f"bob:{number}", {"x": x}), "bob")
    assert story_of(bench, "bob:0") == [
        "0.000 event 'bob:0' came from 'bob'",
        "0.000 event 'bob:0' delivered to 'ann' for 's'",
        "0.000 event 'bob:0' sent to 'B2': wanted by 'B2/c/t'",
    ]
    assert story_of(bench, "bob:1")[1:] == ["0.000 event 'bob:1': no subscription wants it"]
    assert "refused: outside what 'bob' advertised" in story_of(bench, "bob:2")[1]
    bench.handle(LinkDown(), "B2")
    bench.handle([Publish("bob:3", {"x": 3}), Publish("bob:4", {"x": 4})], "bob")  # type: ignore[arg-type]
    assert (
        story_of(bench, "bob:4")[2] == "0.000 event 'bob:4' not sent to 'B2', where 'B2/c/t' want it: the link is down"
    )
    bench.handle(Publish("B9:1", {"x": 3}), "B2")
    assert story_of(bench, "B9:1") == ["0.000 event 'B9:1' of 'B2': ignored, the link is down"]


def test_the_story_of_a_link() -> None:
    bench = traced()
    bench.says("bob", Subscribe, "s", "x <")
    bench.handle(LinkDown(), "B2")
    bench.says("B2", Subscribe, "B2/c/t", "x < 9")
    bench.neighbour("B2", session=2)
    bench.handle(Subscribe(seq_of(SESSION, 9), "B2/c/t", "x < 9"), "B2")
    texts = [each.text for each in bench.broker.story("B2")]
    assert [text for text in texts if "→" in text or "ignored" in text or "hung up" in text] == [
        "'B2': synced → down, by LinkDown of 'B2'",
        "Subscribe 'B2/c/t' of 'B2': ignored, the link is down",
        "'B2': down → greeting, by LinkUp of 'B2'",
        "'B2': greeting → met, by Hello of 'B2'",
        "'B2': met → synced, by Digest of 'B2'",
        "'B2': synced → down, by Subscribe 'B2/c/t' of 'B2'",
        "'B2' was refused, and hung up on: 7 messages are missing before Subscribe",
    ]
    (refused,) = [each for each in story_of(bench, "bob") if "refused" in each]
    assert refused in story_of(bench, "B1/bob/s")


def test_stories_are_bounded_in_entries_and_bytes() -> None:
    """However many messages come, and however large they are."""
    bench = traced()
    bench.broker.start_tracing(entries_max=50)
    for number in range(30):
        bench.says("ann", Subscribe, f"s{number}", f"x = {number}")
    stories = bench.broker._stories
    assert stories is not None and len(stories) == 50 and len(story_of(bench, "B1/ann/s29")) == 4
    (forgotten,) = story_of(bench, "B1/ann/s0")
    assert forgotten.endswith("entries from before are forgotten")
    bench.broker.start_tracing(bytes_max=20_000)
    stories = bench.broker._stories
    for number in range(28):
        bench.says("ann", Subscribe, "huge" * 10_000 if number % 3 else f"t{number}", "x < 3 OR " * 60 + "x < 4")
        assert stories is not None and stories.size <= 20_000
    bench.says("ann", Unsubscribe, "t27")
    assert 1 < len(story_of(bench, "B1/ann/t27")) and max(map(len, story_of(bench, "B1/ann/t27"))) < 500
    for bounds in ((0, 1), (1, 0)):
        with pytest.raises(CallerError, match="room"):
            bench.broker.start_tracing(*bounds)


def test_one_message_leaves_a_bounded_number_of_lines() -> None:
    bench = traced(Settings(routing="subscriptions"))
    bench.says("ann", Subscribe, "wide", "TRUE")
    for number in range(30):
        bench.says("bob", Subscribe, f"s{number}", f"x = {number}")
    stories = Stories("B1", bench.broker, 1_000, 10**6, lines_max=10)
    effects = bench.says("ann", Unsubscribe, "wide")
    stories.note(Unsubscribe(2, "wide"), "ann", LinkState.MET, effects, 0.0, bench.broker.space)
    assert len(effects) > 30 and len(stories) == 11
    assert stories.story("ann")[-1].text == "Unsubscribe: more was done than 10 lines can say"


def test_without_tracing_there_is_no_story() -> None:
    bench = traced()
    bench.broker.stop_tracing()
    with pytest.raises(CallerError, match="not traced"):
        bench.broker.story("ann")


def test_a_traced_broker_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """In runs with faults, under policies of all kinds: the same effects, and something to say about each."""

    class Seen(Run):
        def __init__(self, *arguments: Any) -> None:
            self.effects: list[tuple[str, list[Effect]]] = []
            super().__init__(*arguments)

        def handled(self, broker: str, message: Message, link: str, effects: list[Effect], now: float) -> None:
            self.effects.append((broker, effects))

    def runs() -> list[Any]:
        found = []
        for seed in range(3):
            script = draw(seed)
            seen = Seen(script, draw_settings(seed, script.routing))
            seen.all()
            found.append(seen.effects)
        return found

    plain, init, texts = runs(), Broker.__init__, list[str]()
    add = Stories._add

    def traced_init(self: Broker, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        self.start_tracing()

    def noted(self: Stories, about: Any, text: str, *rest: Any, **named: Any) -> None:
        texts.append(text)
        add(self, about, text, *rest, **named)

    monkeypatch.setattr(Broker, "__init__", traced_init)
    monkeypatch.setattr(Stories, "_add", noted)
    assert runs() == plain and len(texts) > 3_000
    assert not [text for text in texts if "could not be noted" in text]
