"""Which subscriptions are redundant, and which ones prove it.

In a fixed order, broad ones first and ties by id (cover/breadth.py), a subscription is redundant if the union of those
before it covers it. Those that are kept have the same union as all, by induction over the order. The space is cut into
cells chosen from a sample (divide.py), and each cell decides about what meets it (decide.py).
"""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.errors import CallerError, check_on_error
from thatch.merge.weighing import budget_of
from thatch.space.space import Space
from thatch.spark.encoded import Source, source_of, with_cuts
from thatch.spark.failures import map_batches, translated_errors
from thatch.spark.matching.collected import raise_bad_id
from thatch.spark.reducing.decide import CellPlace, Decide, SampleBoxes, Unite, sample_of
from thatch.spark.reducing.divide import TUNING, Division, Tuning, divided
from thatch.spark.reducing.merged import (
    MergeCells,
    SendHome,
    counted_events,
    packed_events,
    sampled_events,
)
from thatch.spark.tables import SubscriptionFrame, check_time_zone, session_of

SAMPLE = 32_768  # subscriptions from which the cells are chosen


def reduce(
    subscriptions: DataFrame,
    space: Space,
    *,
    merge: float | None = None,
    events: DataFrame | None = None,
    on_error: str = "raise",
    nodes_max: int | None = None,
    tuning: Tuning = TUNING,
) -> DataFrame:
    """Which subscriptions the others make redundant: `id`, `status` ('active' or 'passive'), `covered_by`.

    `subscriptions` has `id` and `where`, or `id` and typed columns of bounds, as for `match`. The active ones want what
    all want; `covered_by` of a passive one are active ones whose union holds it, and it is NULL for an active one. What
    is not proven to be covered within the budget of `nodes_max` nodes a cell (cover/exact.py) stays active.
    `on_error="skip"` leaves out clauses that are wrong; `wrong_clauses` lists them.

    `merge` is the share that a merger of active ones may add to what they want, 0 for perfect mergers: by values, and
    given `events` also by a sample of them. More columns then: `merger`, the first of those that are merged; and in its
    row `merged_where`, the clause that says them all, `merged`, how many they are, `added` and `added_events`, the
    shares. `tuning` weighs how the space is cut for the tasks (divide.py): any gives the same decisions.
    """
    budget = budget_of(merge)
    if events is not None and budget is None:
        raise CallerError("events weigh mergers: give merge=, the share that a merger may add")
    reduction = Reduction(subscriptions, space, on_error, nodes_max, tuning)
    return reduction.result() if budget is None else reduction.merged(budget, events)


class Reduction:
    """One reduction, from what it is given to its plan and its result."""

    def __init__(
        self,
        subscriptions: DataFrame,
        space: Space,
        on_error: str = "raise",
        nodes_max: int | None = None,
        tuning: Tuning = TUNING,
    ) -> None:
        check_on_error(on_error)
        self.session = session_of(subscriptions)
        check_time_zone(self.session, space)
        if subscriptions.isStreaming:
            raise CallerError("the subscriptions are a stream: reduce needs all of them, so read them as a table")
        self.subscriptions = SubscriptionFrame.of(subscriptions, space)
        self.space, self.skip, self.nodes_max = space, on_error == "skip", nodes_max
        self.tuning = tuning
        self.source, self.frame = source_of(self.subscriptions, self.skip)
        self.id = self.subscriptions.id_type.simpleString()

    def result(self) -> DataFrame:
        with translated_errors():
            return self.united(self.decided(self.placed()))

    def merged(self, budget: float, events: DataFrame | None) -> DataFrame:
        """The result, with mergers of those that are active."""
        context, id = self.session.sparkContext, self.subscriptions.id_type
        with translated_errors():
            sample = None
            if events is not None:
                some = sampled_events(events, counted_events(events), self.space, self.skip)
                sample = context.broadcast(packed_events(some))
            division = self.division
            home = SendHome(self.numbered, context.broadcast(division), keys_of_tasks(division.tasks))
            rows = map_batches(self.result().join(self.frame, "id"), home, SendHome.schema(self.id))
            merge = MergeCells(self.numbered, id, budget, sample)
            return map_batches(rows.repartition(division.tasks, "task"), merge, MergeCells.schema(self.id))

    @cached_property
    def count(self) -> int:
        """How many subscriptions there are; ids that are NULL or given twice are refused."""
        counted = self.frame.groupBy("id").count()
        row = counted.agg(F.sum("count"), F.max("count"), F.count_if(F.col("id").isNull())).first()
        assert row is not None
        if row[2] or (row[1] or 0) > 1:
            bad = counted.where("count > 1 OR id IS NULL").orderBy(F.col("id").asc_nulls_first()).first()
            raise_bad_id(None if bad is None else bad["id"])
        return int(row[0] or 0)

    @cached_property
    def numbered(self) -> Source:
        return with_cuts(self.source, self.frame)

    @cached_property
    def division(self) -> Division:
        """The space cut into cells, from a sample."""
        count = self.count
        sample = self.frame if count <= SAMPLE else self.frame.sample(fraction=SAMPLE / count, seed=1)
        found = map_batches(sample, SampleBoxes(self.numbered), SampleBoxes.schema(self.id)).toArrow()
        some = sample_of(found, len(self.space))
        scale = count / max(len(found), 1)
        division = divided(some, scale, self.space, self.tuning)
        return division.dealt_out(self.session.sparkContext.defaultParallelism)

    def placed(self) -> DataFrame:
        """Each subscription once for each cell that it meets, in the task of the cell."""
        division = self.division
        shipped = self.session.sparkContext.broadcast(division)
        place = CellPlace(self.numbered, shipped, keys_of_tasks(division.tasks))
        rows = map_batches(self.frame, place, CellPlace.schema(self.id))
        return rows.repartition(division.tasks, "task")

    def decided(self, placed: DataFrame) -> DataFrame:
        """What each cell says of each subscription that it meets."""
        decide = Decide(self.numbered, self.nodes_max)
        return map_batches(placed, decide, Decide.schema(self.id))

    def united(self, decided: DataFrame) -> DataFrame:
        unite = Unite(self.numbered, self.subscriptions.id_type)
        rows = decided.repartition(self.division.tasks, "id")
        return map_batches(rows, unite, f"id {self.id}, status string, covered_by array<{self.id}>")


def keys_of_tasks(tasks: int) -> list[int]:
    """For each task an int that Spark's hash partitioning, of so many partitions, sends to it.

    >>> keys_of_tasks(3)
    [0, 1, 11]
    """
    keys: dict[int, int] = {}
    key = 0
    while len(keys) < tasks:
        keys.setdefault(_murmur(key) % tasks, key)
        key += 1
    return [keys[task] for task in range(tasks)]


def _murmur(key: int) -> int:
    """Spark's hash of an int: Murmur3 of its four bytes, seed 42, as a signed number."""
    mask = 0xFFFF_FFFF
    mixed = key * 0xCC9E2D51 & mask
    mixed = (mixed << 15 | mixed >> 17) & mask
    state = 42 ^ (mixed * 0x1B873593 & mask)
    state = ((state << 13 | state >> 19) & mask) * 5 + 0xE6546B64 & mask
    state ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor & mask
    return state - (1 << 32) if state >> 31 else state
