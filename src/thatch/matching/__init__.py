"""Matching: who wants this event? Match indexes behind one interface, and a linear scan as their oracle.

In reading order:

    matcher    what every match index does: numbers in and out, views that never change
    scan       the linear scan, the oracle
    axes       what the kernels need to know about a space
    entries    exact bounds in flat arrays that only grow; sets and balls as checks; versions
    blocks     64 boxes coded as bytes, compared in one vector instruction
    partition  how boxes are divided into blocks: a surface-area heuristic, groups by pairs of attributes
    tree       blocks of blocks up to a root; one event with a stack, many events with lists
    postings   watchlists: from a value to the entries whose set holds it
    index      our index: levels of trees, a buffer, compaction, views
    groups     one index for all subscriptions, or one each for active and passive ones
    mapped     an index as one run of bytes, mapped into memory
    hilbert    MICS as a match index: cells along a curve, verified exactly
"""

from thatch.matching.hilbert import HilbertMatcher
from thatch.matching.index import TreeMatcher
from thatch.matching.matcher import Matcher, View
from thatch.matching.scan import ScanMatcher

MATCHERS: dict[str, type[Matcher]] = {each.name: each for each in (ScanMatcher, TreeMatcher, HilbertMatcher)}

__all__ = ["MATCHERS", "HilbertMatcher", "Matcher", "ScanMatcher", "TreeMatcher", "View"]
