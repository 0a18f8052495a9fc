"""Reducing on Spark: which subscriptions the others make redundant.

In reading order:

    guard   cells that are too crowded for one task, and that one subscription holds whole
    divide  the space cut into cells with about as much work each, from a sample
    decide  is each covered by those before it, cell by cell; then put together
    merged  mergers of what is kept
    reduce  `reduce`: which subscriptions are redundant, and which ones prove it
    loaded  what `reduce` found, back in one process: a table, or decisions for a broker
    same    which rules want the same
    audit   `audit`: a rule set reduced on Spark, described in words
"""
