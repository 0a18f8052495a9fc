"""What every match index does: regions come and go under numbers, and a view answers which of them hold a point.

Numbers are chosen by the holder (the subscription table maps its ids to them). A view is what a reader holds: it
never changes, whatever is added or discarded meanwhile, so that matching needs no lock. One writer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from thatch.errors import CallerError
from thatch.region.box_sets import Boxes
from thatch.region.region import Region
from thatch.space.axis import Coordinates
from thatch.space.labels import LabelCodes
from thatch.space.space import Space

Numbers = NDArray[np.int64]
T = TypeVar("T")


class View:
    """The regions of one moment. Points and columns are coordinates under `label_codes`."""

    label_codes: LabelCodes

    def match_point(self, point: Sequence[int]) -> list[int]:
        """The numbers of the regions that hold a point, ascending."""
        raise NotImplementedError

    def match_points(self, columns: Sequence[Coordinates]) -> tuple[Numbers, Numbers]:
        """For columns of coordinates, one per attribute: (position, number) pairs, ascending."""
        raise NotImplementedError

    def meeting(self, region: Region) -> list[int]:
        """The numbers of the regions that have a point in common with this one, ascending. A region with balls, on
        either side, may be named although it only comes near."""
        raise NotImplementedError


class Matcher:
    name: ClassVar[str]

    def __init__(self, space: Space) -> None:
        self.space = space

    def add(self, number: int, region: Region) -> None:
        """Take a region in under a new number, 0 or more."""
        self.add_many([number], [region])

    def add_many(self, numbers: Sequence[int] | Numbers, regions: Sequence[Region] | Boxes) -> None:
        """Take in regions, or one plain box for each number as arrays low[n, d], high[n, d]."""
        raise NotImplementedError

    def discard(self, number: int) -> None:
        """Let a region go; an unknown number is ignored."""
        raise NotImplementedError

    def view(self) -> View:
        """What is there now, in coordinates under the space's present label codes."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __contains__(self, number: object) -> bool:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """The memory of the index in addition to the exact bounds."""
        raise NotImplementedError

    def check_invariants(self) -> None:
        raise NotImplementedError

    def match(self, event: Mapping[str, Any]) -> list[int]:
        """The numbers of the regions that hold an event, ascending."""
        return self.read(lambda view: view.match_point(self.space.encode(event)))

    def match_batch(self, events: Any) -> tuple[Numbers, Numbers]:
        """For an Arrow table or a dict of arrays: (row, number) pairs, ascending."""
        return self.read(lambda view: view.match_points(self.space.encode_batch(events)))

    def meeting(self, region: Region) -> list[int]:
        """The numbers of the regions that have a point in common with this one, ascending."""
        return self.read(lambda view: view.meeting(region))

    def read(self, ask: Callable[[View], T]) -> T:
        """The answer of a present view. An axis may be recoded between taking the view and encoding the event:
        then once more. The view comes first: an event encoded before a new string was cut would miss it."""
        while True:
            view = self.view()
            answer = ask(view)
            if self.space.is_current(view.label_codes):
                return answer

    def check_new(self, numbers: Sequence[int] | Numbers) -> None:
        """Numbers of a batch are new and differ; checked before anything changes."""
        seen: set[int] = set()
        for number in numbers:
            if number in self or number in seen:
                raise CallerError(f"number {number} is taken already")
            if not 0 <= number < 2**63:
                raise CallerError(f"a number is from 0 to 2^63 - 1, not {number}")
            seen.add(int(number))
