"""Matching on Spark: who wants each event of a DataFrame, by three strategies with one result.

In reading order:

    files      the strategy `files`: workers read Parquet themselves, next to the index
    collected  a table of subscriptions on the driver, as an index to broadcast
    shipped    an index on its way to the workers: broadcast, written once an executor, mapped by each worker
    arrow      the strategy `arrow`: events go through Python workers in batches, past the index
    cells      nearness turned into equality, which a hash join can use
    typed      subscriptions as rows that the JVM can compare with events
    native     the strategy `native`: an equi-join on cells inside the JVM
    facts      what the choice of a strategy depends on, as plain numbers; no Spark
    choice     which strategy, and why: a function of the facts; no Spark
    keys       which keys and cells suit two samples; NumPy, no Spark
    sampled    samples of both tables, and the keys that suit them
    gathered   both tables of a match, and the facts about them, each found when it is needed
    match      `match`, `explain`: what the choice says, done
"""
