"""What a reader holds: an immutable view of the index with the ids of that time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thatch.matching.groups import GroupedView
from thatch.matching.tree import sort_unique_pairs
from thatch.table.names import Chunks, id_of


class Moment(NamedTuple):
    """One state of a table: readers take it without a lock, and it never changes."""

    view: GroupedView
    chunks: Chunks
    kind: type | None  # of ids

    def ids(self, numbers: Sequence[int]) -> list[Any]:
        return sorted([id_of(self.chunks, number) for number in numbers])


def pairs_of(rows: Any, numbers: Any, moment: Moment, events: int) -> list[Any]:
    """Rows and an Arrow array of ids, sorted by both. Only ids that occur are looked at, each once."""
    import pyarrow as pa

    first = int(numbers.min()) if len(numbers) else 0
    present = np.zeros(int(numbers.max()) - first + 1 if len(numbers) else 0, np.bool_)
    present[numbers - first] = True
    occurring = np.flatnonzero(present)
    ids = [id_of(moment.chunks, number) for number in (occurring + first).tolist()]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)
    if (np.diff(order) == 1).all():  # ids ascend with their numbers
        places = (np.cumsum(present) - 1)[numbers - first]
    else:
        ranks = np.empty(len(present), np.int64)
        ranks[occurring[order]] = np.arange(len(ids))
        rows, places = sort_unique_pairs(rows, ranks[numbers - first], events)
        ids = [ids[at] for at in order.tolist()]
    return [rows, pa.array(ids, pa.int64() if moment.kind is int else pa.string()).take(pa.array(places))]
