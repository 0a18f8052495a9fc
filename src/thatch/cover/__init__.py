"""Covering: is this subscription already covered by the others, and which ones prove it?

In reading order:

    verdict         `Covered`, `Uncovered`, `Unproven`, and a verifier that trusts no engine
    engine          what every cover engine does
    index           a bitset index over boxes, and its kernels
    pairwise        covering by one member: scan, index, poset
    vague           members that boxes do not say exactly, by the boxes around them
    boxed           what engines that cover by a union share: members and questions as boxes
    batch           deciding about many regions in one call of a kernel
    breadth         the order in which a set is reduced: broad regions first
    box_rows        many subscriptions as rows of boxes
    search          kernels of our exact engine
    exact           our exact engine: branch and bound over the boxes that meet the region
    rectangles      kernels of negative space
    negative        negative space: what no member covers, as disjoint rectangles
    conflict        the conflict table of Monte-Carlo subsumption, and its kernels
    montecarlo      Monte-Carlo subsumption: conflict table, then random points
    balltree        kernels of an index over balls
    balls           an index over balls, by tree or by random projections
    projection      the engine for balls
    ranges          ranges of cell numbers with owners
    hilbert         MICS: covering on cells along a curve
    dominance       covering by one as dominance of points on a curve
    engines         the table of engines
    covers          `covers`: one question about a list of clauses
    cells           what a link was sent, as cells; an index of members in front of any engine
    cover_set       what every set of active and passive subscriptions does
    active_set      active and passive subscriptions with certificates
    relation_graph  the congestion paper's relation graphs, in place of an active set
"""

from __future__ import annotations

from thatch.cover.active_set import ActiveSet
from thatch.cover.cells import CellIndex, CellTable
from thatch.cover.cover_set import Change, CoverSet
from thatch.cover.covers import covers
from thatch.cover.engine import CoverEngine
from thatch.cover.engines import ENGINES, engine
from thatch.cover.exact import ExactEngine
from thatch.cover.hilbert import HilbertEngine
from thatch.cover.montecarlo import MonteCarloEngine
from thatch.cover.negative import NegativeEngine
from thatch.cover.pairwise import PairwiseEngine
from thatch.cover.projection import ProjectionEngine
from thatch.cover.relation_graph import RelationGraph
from thatch.cover.verdict import Covered, Likely, Uncovered, Unproven, Verdict, grown, verify
from thatch.region.box_sets import region_of_box

__all__ = [
    "ENGINES",
    "ActiveSet",
    "CellIndex",
    "CellTable",
    "Change",
    "CoverEngine",
    "CoverSet",
    "Covered",
    "ExactEngine",
    "HilbertEngine",
    "Likely",
    "MonteCarloEngine",
    "NegativeEngine",
    "PairwiseEngine",
    "ProjectionEngine",
    "RelationGraph",
    "Uncovered",
    "Unproven",
    "Verdict",
    "covers",
    "engine",
    "grown",
    "region_of_box",
    "verify",
]
