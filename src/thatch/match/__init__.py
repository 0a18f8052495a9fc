"""Who wants this event? Match indexes behind one interface, and a linear scan as their oracle."""

from thatch.match.counting import CountingMatcher
from thatch.match.hilbert import HilbertMatcher
from thatch.match.index import TreeMatcher
from thatch.match.matcher import Matcher, View
from thatch.match.scan import ScanMatcher

MATCHERS: dict[str, type[Matcher]] = {
    each.name: each for each in (ScanMatcher, CountingMatcher, TreeMatcher, HilbertMatcher)
}

__all__ = ["MATCHERS", "CountingMatcher", "HilbertMatcher", "Matcher", "ScanMatcher", "TreeMatcher", "View"]
