"""Price alerts: thresholds and watchlists, which of them are redundant, and who gets which tick.

Run it: `python examples/price_alerts.py`
"""

from __future__ import annotations

import random

from thatch import Space, SubscriptionTable

SPACE = Space.parse("symbol string not null, price double not null 0..10000, volume int not null 0..")
SYMBOLS = [f"{first}{second}{third}" for first in "ABCDE" for second in "AEIOU" for third in "LMNRST"]
WATCHED = SYMBOLS[::3]  # 50 of 150

ALERTS = {
    "bargains": "price < 20",
    "blocks": "price >= 20 AND volume >= 800000",
    "watchlist": f"symbol IN ({', '.join(map(repr, WATCHED))}) AND price < 60",
    "ann": f"symbol = '{WATCHED[0]}' AND price BETWEEN 10 AND 50",  # all of it is on the watchlist
    "bob": "volume > 900000",  # a bargain, or a block: no single alert covers it
    "eve": "symbol LIKE 'B%' AND price > 95",
}


def ticks(count: int) -> dict[str, list[object]]:
    """A column an attribute, as a feed handler would collect them."""
    dice = random.Random(7)
    return {
        "symbol": [SYMBOLS[int(dice.random() * len(SYMBOLS))] for _ in range(count)],
        "price": [round(5 + 95 * dice.random(), 2) for _ in range(count)],
        "volume": [int(1_000_000 * dice.random()) for _ in range(count)],
    }


def main() -> None:
    table = SubscriptionTable(SPACE)
    changes = table.subscribe_many(list(ALERTS), list(ALERTS.values()))
    told = [id for change in changes for id in change.forward]
    print(f"{len(table)} alerts; an upstream feed needs to know {len(told)} of them: {', '.join(told)}")
    for id, alert in table.items():
        if not alert.active:
            print(f"  {table.explain(id)}")

    tick = {"symbol": WATCHED[0], "price": 55.0, "volume": 1_000}
    print(f"\nWho wants {tick}?\n  {', '.join(map(str, table.match(tick)))}")
    print(f"  {table.explain('ann', tick)}")

    batch = ticks(5_000)
    pairs = table.match_batch(batch)  # an Arrow table: event_index, subscription_id
    wanted = len(pairs["event_index"].unique())
    print(f"\n{len(batch['symbol']):,} ticks, {wanted:,} of them wanted by somebody:")
    counts = {each["values"]: each["counts"] for each in pairs["subscription_id"].value_counts().to_pylist()}
    for id in table:
        clause = ALERTS[str(id)]
        print(f"  {id:<10}{counts.get(id, 0):>6,}  {clause if len(clause) < 60 else clause[:50] + '…'}")

    change = table.unsubscribe("watchlist")
    print(f"\nThe watchlist goes: first forward {change.forward}, then withdraw {change.withdraw}")
    print(f"  {table.explain('ann')}")


if __name__ == "__main__":
    main()
