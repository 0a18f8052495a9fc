"""Claim: clauses that share shapes are compiled at 20,000 a second or more on one core.

Beside it: sqlglot's parser alone on the same clauses (which gives a tree, not yet a region), and our own compiler
with an empty cache of shapes for each clause.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

import sqlglot
from sqlglot import exp

from benchmarks import interleaved, print_speed, report
from thatch import Space

SPACE = "symbol string, price double not null 0..1000, volume int, day date, kind enum('buy','sell')"
COUNT = 4_000


def clauses(seed: int) -> dict[str, list[str]]:
    """Three kinds of standing query, each of a few shapes."""
    draw = random.Random(seed)
    symbols = [f"S{number:04d}" for number in range(500)]

    def alert() -> str:
        low = draw.uniform(0, 900)
        return f"symbol = '{draw.choice(symbols)}' AND price BETWEEN {low:.2f} AND {low + draw.uniform(1, 99):.2f}"

    def rule() -> str:
        return (
            f"(volume > {draw.randrange(10**6)} OR price < {draw.uniform(0, 500):.1f}D) AND kind <> 'sell' "
            f"AND day >= DATE'2024-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}'"
        )

    def watchlist() -> str:
        return f"symbol IN ({', '.join(repr(s) for s in draw.sample(symbols, 20))}) AND price > {draw.randrange(1000)}"

    return {make.__name__: [make() for _ in range(COUNT)] for make in (alert, rule, watchlist)}


def ours() -> None:
    """Shapes that are known, and shapes that are not."""
    ways: dict[str, Callable[[], object]] = {}
    for name, texts in clauses(seed=1).items():
        space = Space.parse(SPACE)

        def shared(space: Space = space, texts: list[str] = texts) -> None:
            for text in texts:
                space.where(text)

        def fresh(texts: list[str] = texts) -> None:
            for text in texts[: COUNT // 10]:
                Space.parse(SPACE).where(text)

        ways |= {name: shared, f"{name}, a new space each": fresh}
    print_speed(ways, rounds=7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", action="store_true", help="ours alone; a speed comes last")
    if parser.parse_args().ours:
        ours()
    else:
        compare()


def compare() -> None:
    rows = []
    for name, texts in clauses(seed=1).items():
        space = Space.parse(SPACE)

        def shared(space: Space = space, texts: list[str] = texts) -> None:
            for text in texts:
                space.where(text)

        def fresh(texts: list[str] = texts) -> None:
            for text in texts[: COUNT // 10]:
                Space.parse(SPACE).where(text)

        def parser(texts: list[str] = texts) -> None:
            for text in texts[: COUNT // 10]:
                sqlglot.parse_one(text, dialect="spark", into=exp.Condition)

        seconds = interleaved({"shared": shared, "fresh": fresh, "sqlglot": parser}, rounds=5)
        ours = seconds["shared"] / COUNT
        rows.append(
            {
                "clauses": name,
                "per second": round(1 / ours),
                "sqlglot alone / ours": seconds["sqlglot"] * 10 / COUNT / ours,
                "without cache / ours": seconds["fresh"] * 10 / COUNT / ours,
            }
        )
    report("parse", rows)


if __name__ == "__main__":
    main()
