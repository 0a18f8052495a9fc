"""Regions: sets of points, as unions of terms.

In reading order:

    intervals  a set of coordinates on one axis: `x <> 5` is two intervals, a watchlist is 50,000
    boxes      Numba kernels on flat arrays of boxes and on columns of coordinates
    ball       points within a radius of a centre, bounded with proved rounding
    term       a product of interval sets and balls; the normal form of a union of terms
    recoding   coordinates that follow when an axis is recoded
    region     `Region`: contains, intersect, unite, subtract, count
    identity   a key that equal regions have
    widths     how wide a side is by its values
    box_sets   many plain boxes as two arrays, and as regions
    columns    boxes from typed columns of bounds
    packing    regions and string labels as bytes; the one place that restores labels
"""
