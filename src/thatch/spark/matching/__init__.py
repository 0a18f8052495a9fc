"""Matching on Spark: who wants each event of a DataFrame, by three strategies with one result.

In reading order:

    files      the strategy `files`: workers read Parquet themselves, next to the index
    collected  a table of subscriptions on the driver, as an index to broadcast
    shipped    an index on its way to the workers: broadcast, written once an executor, mapped by each worker
    arrow      the strategy `arrow`: events go through Python workers in batches, past the index
    cells      nearness turned into equality, which a hash join can use
    typed      subscriptions as rows that the JVM can compare with events
    native     the strategy `native`: an equi-join on cells inside the JVM
    planner    which keys and cells suit two tables, and what each strategy would look at
    match      `match`, `explain`: the choice of a strategy, and the pairs
"""
