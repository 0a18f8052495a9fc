"""Learning on Spark: what events and subscriptions look like.

In reading order:

    similar  phi of subscriptions, and similar pairs, by joins
    places   events and subscriptions counted on a grid of cells
    learn    `learn`: selectivity, cell boundaries, matches, similarity, places
"""
