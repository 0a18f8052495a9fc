"""`thatch plan`: what it prints, and how it fails."""

from __future__ import annotations

import pytest

from thatch.cli.main import main

PLAN = ["plan", "--space", "price int not null 0..1000", "price < 500", "price < 20", "price BETWEEN 30 AND 60"]


def test_thatch_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--unsubscribe", "clause 1"]) == 0
    assert capsys.readouterr().out == (
        "removing 'clause 1', exact lazy: 3 messages, 2 subscriptions forwarded on 1 link\n"
        "removing 'clause 1', exact lazy, packed: 1 message, 2 subscriptions forwarded on 1 link\n"
    )
    assert main([*PLAN, "--to-cover", "none", "--json"]) == 0
    assert '"messages": 2' in capsys.readouterr().out


@pytest.mark.long
def test_thatch_plan_of_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--subscriptions", "30", "--degree", "9", "--events", "20"]
    assert main(["plan", "--scenario", "unsubscriptions", *sizes, "--cover", "pairwise", "--retract"]) == 0
    loud, packed, calm = capsys.readouterr().out.splitlines()
    assert loud.startswith("removing 'r0', pairwise retracting: ") and "packed: " in packed and "incremental" in calm
    assert main(["plan", "--scenario", "unsubscriptions", *sizes, "--cover", "pairwise", "--theta", "0"]) == 0
    assert "packed, incremental at 0: " in capsys.readouterr().out.splitlines()[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan"], "thatch plan needs clauses and --space, or --scenario NAME"),
        (PLAN, "what should be planned?"),
        ([*PLAN, "--unsubscribe", "clause 9"], "no clause 'clause 9'; ids are those of files, FILE:LINE in text"),
        ([*PLAN, "--subscribe", "cost < 5"], "no attribute 'cost'"),
        ([*PLAN, "--theta", "0.5", "--subscribe", "price < 5"], "needs routing by advertisements"),
        (["plan", "--scenario", "nothing"], "no scenario 'nothing'"),
    ],
)
def test_thatch_plan_refuses_bad_input(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
