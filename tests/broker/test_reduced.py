"""What was reduced elsewhere, back in one process: a table, `negative`, and a broker decide nothing again."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.broker_bench import SPACE as BROKER_SPACE
from helpers.broker_bench import Bench
from thatch import Space, SubscriptionTable
from thatch.broker import Broker, Policy, Settings
from thatch.broker.image import Decision
from thatch.cover import ExactEngine, NegativeEngine
from thatch.errors import CallerError
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import Advertise, Effect, Message, Persist, Subscribe
from thatch.protocol.records import RecordChange, SubscriptionRecord
from thatch.table.table import Id

SPACE = Space.parse("x int not null 0..99, y int not null 0..99")


def random_clauses(seed: int, count: int) -> dict[Id, str]:
    dice = Random(seed)
    clauses: dict[Id, str] = {}
    for place in range(count):
        x, y = dice.randrange(90), dice.randrange(90)
        size = dice.choice((5, 20, 40))
        clauses[f"s{place}"] = f"x BETWEEN {x} AND {x + size} AND y BETWEEN {y} AND {y + size}"
    return clauses


def reduced(clauses: dict[Id, str]) -> dict[Id, tuple[Id, ...]]:
    table = SubscriptionTable(SPACE)
    table.subscribe_many(list(clauses), list(clauses.values()))
    return {id: each.certificate for id, each in table.items() if each.certificate is not None}


def no_checks(monkeypatch: pytest.MonkeyPatch, *engines: Any) -> list[str]:
    """Counts what engines are asked."""
    asked: list[str] = []
    for engine in engines:
        for name in ("check", "add_many"):
            own = getattr(engine, name)

            def counted(self: Any, *args: Any, own: Any = own, name: str = name) -> Any:
                asked.append(name)
                return own(self, *args)

            monkeypatch.setattr(engine, name, counted)
    return asked


@pytest.mark.parametrize("cover", ["exact", "negative"])
def test_a_table_decides_nothing_again(cover: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clauses = random_clauses(1, 120)
    certificates = reduced(clauses)
    assert len(certificates) > 20
    asked = no_checks(monkeypatch, ExactEngine, NegativeEngine)
    table = SubscriptionTable.of_reduced(SPACE, clauses, certificates, cover)
    assert asked == []
    assert {id: table[id].certificate for id in table if not table[id].active} == certificates
    table.check_invariants()
    whole = SubscriptionTable(SPACE)
    whole.subscribe_many(list(clauses), list(clauses.values()))
    for event in ({"x": x, "y": y} for x in range(0, 100, 7) for y in range(0, 100, 7)):
        assert table.match(event) == whole.match(event)
    for id in list(clauses)[::5]:
        table.unsubscribe(id)
    table.check_invariants()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(CallerError, match="certificates name active members only"):
        SubscriptionTable.of_reduced(SPACE, {"a": "x < 5", "b": "x < 3"}, {"b": ["c"]})
    with pytest.raises(CallerError, match="certificates name active members only"):
        SubscriptionTable.of_reduced(SPACE, {"a": "x < 5"}, {"b": ["a"]})


def test_negative_makes_its_rectangles_widest_first() -> None:
    clauses = random_clauses(2, 60)
    regions = {id: SPACE.where(clause) for id, clause in clauses.items()}
    engine, again = NegativeEngine(SPACE, k=4), NegativeEngine(SPACE, k=4)
    engine.load(list(regions), list(regions.values()))
    for id, region in regions.items():
        again.add(id, region)
    again.rebuild()
    assert all((one == other).all() for one, other in zip(engine.rectangles, again.rectangles, strict=True))
    engine.check_invariants()


# --- Brokers ---------------------------------------------------------------------------------------------------------


def overlay(policy: Policy, routing: str) -> tuple[Bench, list[RecordChange]]:
    """A broker with two neighbours. One of them wants `b`, so it is not sent `b`, nor what only `a` and `b` cover."""
    bench, records = Bench(Settings(routing, policy)), list[RecordChange]()  # type: ignore[arg-type]
    inner = bench.handle

    def recording(message: Message, link: str) -> list[Effect]:
        effects = inner(message, link)
        if effects and isinstance(effects[0], Persist):
            records.extend(effects[0].records)
        return effects

    bench.handle = recording  # type: ignore[method-assign]
    bench.client("ann").settled_neighbour("B2").settled_neighbour("B3")
    if routing == "advertisements":
        for name in ("B2", "B3"):
            bench.says(name, Advertise, f"{name}/p/a", "TRUE")
    for id, where in (("both", "x BETWEEN 20 AND 40"), ("a", "x < 30"), ("narrow", "x < 10"), ("late", "x > 90")):
        bench.says("ann", Subscribe, id, where)
    bench.says("B3", Subscribe, "B3/c/b", "x BETWEEN 30 AND 50")
    return bench, records


DECIDED = {
    "B1/ann/a": Decision("x < 30", None),
    "B3/c/b": Decision("x BETWEEN 30 AND 50", None),
    "B1/ann/both": Decision("x BETWEEN 20 AND 40", ("B1/ann/a", "B3/c/b")),
    "B1/ann/narrow": Decision("x < 10", ("B1/ann/a",)),
}


@pytest.mark.parametrize("routing", ["subscriptions", "advertisements"])
@pytest.mark.parametrize(
    "policy", [Policy(), Policy(retract=True), Policy("pairwise"), Policy("pairwise", graph="simplified")], ids=str
)
def test_a_broker_holds_back_what_its_neighbour_covers(policy: Policy, routing: str) -> None:
    _, records = overlay(policy, routing)
    settings = Settings(routing, policy)  # type: ignore[arg-type]
    broker = Broker.restored("B1", BROKER_SPACE, records, settings, decided=DECIDED)
    broker.check_invariants()
    sent = {name: set(broker.outbound(SUBSCRIPTIONS, name).forwarded()) for name in ("B2", "B3")}
    assert "B1/ann/late" in sent["B2"] and "B1/ann/a" in sent["B2"] & sent["B3"]
    assert "B1/ann/narrow" not in sent["B2"] | sent["B3"]
    assert "B1/ann/both" in sent["B3"]  # where `b` came from: it is not sent back, and `a` alone is too little
    if policy.graph is None:
        assert "B1/ann/both" not in sent["B2"]


def test_a_broker_asks_only_about_what_was_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    _, records = overlay(Policy(), "subscriptions")
    asked = no_checks(monkeypatch, ExactEngine)
    Broker.restored("B1", BROKER_SPACE, records, Settings("subscriptions"), decided=DECIDED)
    assert len(asked) == 3  # `late` on two links, `both` on the one where its certificate is not sent


def test_a_decision_about_other_clauses_is_not_used() -> None:
    """Of the passive one, and of one that its certificate names."""
    _, records = overlay(Policy(), "subscriptions")
    for id, where in (("B1/ann/narrow", "x < 80"), ("B1/ann/a", "x < 5")):
        changed = [replace(r, where=where) if isinstance(r, SubscriptionRecord) and r.id == id else r for r in records]
        broker = Broker.restored("B1", BROKER_SPACE, changed, Settings("subscriptions"), decided=DECIDED)
        broker.check_invariants()
        assert "B1/ann/narrow" in broker.outbound(SUBSCRIPTIONS, "B2").forwarded()
