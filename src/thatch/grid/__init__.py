"""Grids: cells and the curves through them.

In reading order:

    curve   Hilbert and other curves; a box as ranges of cell numbers, by descent
    grid    some attributes cut into cells, and a curve through them
    choice  which attributes a grid should have
"""
