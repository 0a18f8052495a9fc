"""Learning on Spark: what events and subscriptions look like.

In reading order:

    similar  the congestion paper's phi, and similar pairs
    places   where events are and where subscriptions are
    learn    `learn`: selectivity, cell boundaries, matches, similarity, places
"""
