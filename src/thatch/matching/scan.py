"""The linear scan: every region is asked. The oracle of the other matchers, and the best for a handful of regions.

O(regions) an event, or in batches O(regions) passes over the columns. No memory but the regions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thatch.matching.matcher import Matcher, Numbers, View
from thatch.region.box_sets import Boxes, as_boxes, as_regions
from thatch.region.region import Region
from thatch.region.term import products
from thatch.space.axis import Coordinates
from thatch.space.space import Space


class ScanView(View):
    def __init__(self, space: Space, regions: dict[int, Region]) -> None:
        self.space, self.label_codes = space, space.label_codes
        self.regions = regions

    def match_point(self, point: Sequence[int]) -> list[int]:
        return sorted(number for number, region in self.regions.items() if region.contains_point(point))

    def match_points(self, columns: Sequence[Coordinates]) -> tuple[Numbers, Numbers]:
        hits = [np.flatnonzero(region.contains_points(columns)) for region in self.regions.values()]
        rows = np.concatenate([np.zeros(0, np.int64), *hits])
        numbers = np.repeat(np.array(list(self.regions), np.int64), [len(each) for each in hits])
        order = np.lexsort((numbers, rows))
        return rows[order], numbers[order]

    def meeting(self, region: Region) -> list[int]:
        terms = region.terms_in(self.space)
        return sorted(number for number, each in self.regions.items() if products(terms, each.terms))


class ScanMatcher(Matcher):
    name = "scan"

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._regions: dict[int, Region] = {}

    def add_many(self, numbers: Sequence[int] | Numbers, regions: Sequence[Region] | Boxes) -> None:
        self.check_new(numbers)
        as_boxes(numbers, regions, self.space)  # refuses arrays of another shape
        known = [region.in_space(self.space) for region in as_regions(numbers, regions, self.space)]
        self._regions = self._regions | dict(zip(map(int, numbers), known, strict=True))  # views keep the old one

    def discard(self, number: int) -> None:
        self._regions = {each: region for each, region in self._regions.items() if each != number}

    def view(self) -> ScanView:
        return ScanView(self.space, self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, number: object) -> bool:
        return number in self._regions

    @property
    def nbytes(self) -> int:
        return 0

    def check_invariants(self) -> None:
        for region in self._regions.values():
            region.terms_in(self.space)
