"""The simulator: overlays, workloads, what it records, and the properties of routing that the papers prove."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from thatch.broker import Policy, Settings
from thatch.cli.main import main
from thatch.errors import CallerError
from thatch.sim import topology
from thatch.sim.network import Clauses, Network
from thatch.sim.oracle import Failed
from thatch.sim.overlay import Overlay
from thatch.sim.run import Run, draw_settings, run, shortest_prefix
from thatch.sim.script import Script, Step, draw
from thatch.sim.workload import covered, covering_degree, space_of
from thatch.space.space import Space

# --- Overlays --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("links", "brokers"),
    [
        (topology.congestion()[0], 49),
        (topology.monte_carlo(), 9),
        (topology.eleven(), 11),
        (topology.chain("ABC"), 3),
        (topology.star("ABCD"), 4),
        (topology.random_tree(15, random.Random(3)), 15),
    ],
)
def test_topologies_are_trees(links: topology.Links, brokers: int) -> None:
    names = topology.names_of(links)
    assert len(names) == brokers and len(links) == brokers - 1
    assert all(topology.path(links, names[0], name) is not None for name in names)


def test_a_path_leads_from_end_to_end() -> None:
    assert topology.path(topology.chain("ABCD"), "D", "B") == [("D", "C"), ("C", "B")]
    assert topology.path(topology.chain("AB"), "A", "C") is None


# --- Workloads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [5, 20, 60])
def test_the_generator_hits_its_covering_degree(degree: int) -> None:
    space = space_of(4)
    made = covered(8 * (degree + 1), degree, random.Random(degree))
    assert covering_degree([space.where(each.where) for each in made]) == pytest.approx(degree, rel=0.05)
    assert sum(each.is_root for each in made) == 8


# --- Properties 1 and 2 of the congestion paper ----------------------------------------------------------------------


def forwarded_links(network: Network, id: str) -> list[tuple[str, str]]:
    """The links over which a subscription was forwarded."""
    return [
        (name, link.name)
        for name, node in network.nodes.items()
        for link in node.broker.links.values()
        if id in link.outbound.subscriptions.sent
    ]


def settled_overlay(policy: Policy, seed: int) -> tuple[Overlay, list[str]]:
    links, publishers, subscribers = topology.congestion()
    net = Overlay(space_of(2), links, subscribers, publishers, Settings(policy=policy), seed)
    made = covered(40, 9, random.Random(seed), attributes=2)
    for roots in (True, False):
        for each in made:
            if each.is_root == roots:
                net.subscribe(each.id, each.where)
        net.network.run()
    return net, [each.id for each in made if not each.is_root]


def test_property_1_without_covering_a_subscription_travels_along_a_tree() -> None:
    net, ids = settled_overlay(Policy(None), 1)
    for id in ids:
        links = forwarded_links(net.network, f"{net.where[id]}/at {net.where[id]}/{id}")
        assert len({to for _, to in links}) == len(links), "no broker is sent it twice"
        assert {"P1", "P2", "P3"} <= {to for _, to in links}
        assert all(topology.path(links, net.where[id], to) is not None for _, to in links)


def test_property_2_with_covering_a_covered_one_travels_along_a_path() -> None:
    net, ids = settled_overlay(Policy("pairwise"), 2)
    for id in ids:
        links = forwarded_links(net.network, f"{net.where[id]}/at {net.where[id]}/{id}")
        assert len({one for one, _ in links}) == len(links), "no broker forwards it twice: no branch"
        assert links == [] or topology.path(links, net.where[id], links[-1][1]) is not None


# --- Runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_failure_is_narrowed_down_to_its_shortest_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a broker that never promotes, the last step of the prefix is the one that needs it."""
    monkeypatch.setattr("thatch.cover.active_set.ActiveSet._recheck", lambda self, id, region, most=None: ([], []))
    for seed in range(4, 50):  # the fourth has a short one
        script = draw(seed, steps=6)
        settings = Settings("subscriptions", Policy("exact"))
        try:
            run(script, settings)
        except AssertionError:
            steps, _ = shortest_prefix(script, settings)
            run(script.prefix(steps - 1), settings)
            return
    pytest.fail("no seed finds a broker that never promotes")


@pytest.mark.long
def test_an_event_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that says settled at once, while others on the way do not know yet. A space that grows may open too
    early by that, too: such runs fail before."""
    from thatch.broker.settling import Settling

    monkeypatch.setattr(Settling, "unsettled", lambda self, but: {})
    assert any("never came to" in _failure(seed) for seed in range(40))


def _failure(seed: int) -> str:
    """Why a run fails; empty if it does not."""
    script = draw(seed)
    try:
        run(script, draw_settings(seed, script.routing))
    except Failed as error:
        return str(error)
    return ""


def test_a_step_without_its_subject_does_nothing() -> None:
    script = draw(1).prefix(0)
    simulated = Run(script, Settings())
    for kind, args in (("unsubscribe", ("c0", "nobody's")), ("leave", ("B99",)), ("cut", ("B0", "B99"))):
        getattr(simulated, f"_{kind}")(*args)
    assert simulated.all().calm == ()
    assert isinstance(script.steps[-1], Step)


def test_nobody_is_drawn_who_subscribes_twice_under_one_id() -> None:
    """A client that compares in pages and then moves while links lag has ids for each."""
    for seed in (5380, 7794, 8970):
        there = set()
        for step in draw(seed).steps:
            if step.kind == "subscribe":
                assert step.args[:2] not in there
                there.add(step.args[:2])
            elif step.kind == "unsubscribe":
                there.discard(step.args)
    again = [Step(0.0, "subscribe", ("c0", "s1", where, None)) for where in ("x < 5", "x > 5")]
    links, homes = topology.chain("AB"), {"c0": "A"}
    script = Script(1, links, (0.002,), None, homes, (), "subscriptions", 0.0, 0.0, False, False, tuple(again))
    with pytest.raises(CallerError, match="has a subscription 's1' already"):
        Run(script, Settings("subscriptions")).all()


def test_a_wrong_link_between_two_lost_disks_is_taken_away() -> None:
    """Each of them has forgotten its neighbour, and meets the other first."""
    faults = (("crash", "B3", False), ("cycle", "B0", "B3"), ("restart", "B3"), ("crash", "B0", False))
    links, homes = topology.chain(("B0", "B1", "B2", "B3")), {"c0": "B0", "c3": "B3"}
    steps = [Step(0.0, "subscribe", (name, f"s{name}", "x < 5", None)) for name in homes]
    steps += [Step(1.0, kind, tuple(args)) for kind, *args in faults]
    steps += [Step(1.01, "restart", ("B0",)), Step(2.0, "rest")]
    slow = (0.02, 0.002, 0.02)
    script = Script(1, links, slow, None, homes, (), "subscriptions", 0.0, 0.0, False, False, tuple(steps))
    simulated = Run(script, Settings("subscriptions"))
    simulated.all()
    assert any("would close a cycle" in each for each in simulated.network.hang_ups)


def test_a_compiled_clause_belongs_to_its_space() -> None:
    clauses = Clauses(Space.parse("x int"))
    other = Space.parse("x int, y int")
    assert clauses.compiled("x > 1", clauses.space).space is clauses.space
    assert clauses.compiled("x > 1", other).space is other


# --- `thatch simulate` -----------------------------------------------------------------------------------------------

SMALL = ["--subscriptions", "60", "--degree", "9", "--events", "20", "--unsubscriptions", "3"]


@pytest.mark.long
def test_simulate_writes_measurements_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "run"
    assert main(["simulate", "unsubscriptions", *SMALL, "--retract", "--output", str(folder)]) == 0
    said = capsys.readouterr()
    assert "unsubscriptions, exact retracting" in said.out and said.err == f"thatch: made the folder {folder.parent}\n"
    table = pq.read_table(folder / "measured.parquet")
    measures = set(table["measure"].to_pylist())
    assert {"queue", "table", "sent", "delay", "false positives", "handled Subscribe"} <= measures
    assert set(table["tier"].to_pylist()) == {"core", "inner", "publishers' edge", "subscribers' edge"}
    assert all((folder / f"{name}.png").stat().st_size > 5_000 for name in ("queues", "delays", "tables", "messages"))


@pytest.mark.parametrize("scenario", ["arrivals", "line"])
def test_simulate_as_json(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", scenario, *SMALL, "--cover", "none", "--costs", "free", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["summary"]["published"] == 20 and result["policy"] == "none" and result["files"] == []


def test_simulate_lists_its_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate"]) == 0
    assert "unsubscriptions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "no scenario 'nothing'; there are unsubscriptions"),
        (["line", "--cover", "magic"], "no cover engine 'magic'"),
        (["line", "--cover", "none", "--retract"], "nothing to retract"),
        (["line", "--graph", "simplified"], "--graph goes with --cover pairwise"),
        (["line", "--subscriptions", "0"], "--subscriptions is at least 1, not 0"),
        (["line", "--interval", "0"], "--interval 0"),
    ],
)
def test_simulate_refuses_bad_input(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *arguments]) == 2
    assert said in capsys.readouterr().err
