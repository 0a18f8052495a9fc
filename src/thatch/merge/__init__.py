"""Merging: several regions as one.

In reading order:

    bounding  the least simple term around two, and how much of it they fill
    pairs     which terms lie inside one another, which pairs add least: kernels over flat arrays
    groups    what is merged: shapes, trees of mergers, groups with their riders
    merge     `MergeSet`: perfect mergers, mergers within a budget, and un-merging
    weighing  what a merger may add, and what it adds
"""

from thatch.merge.merge import MergeChange, Merger, MergeSet, merged

__all__ = ["MergeChange", "MergeSet", "Merger", "merged"]
