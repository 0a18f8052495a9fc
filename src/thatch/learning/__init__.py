"""What events and subscriptions look like together, computed on arrays that either engine fills.

In reading order:

    runs         long work in pieces
    selectivity  which attributes tell subscriptions apart, each on its own and jointly
    cells        where cells begin, and how many events and subscriptions each cell has
    words        a box as a reader would say it
    regions      cells that lack events or subscriptions, merged into boxes
    similar      the congestion paper's phi, and similar pairs
    sketch       what samples say of a space: selectivity, cells, the grid to count on
"""
