"""What `reduce` found, back in one process: a table of subscriptions that decides nothing again, or what a broker needs
to know when it is constructed."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.broker.image import Decision
from thatch.errors import CallerError
from thatch.region.region import Region
from thatch.region.term import boxes_to_terms
from thatch.space.space import Space
from thatch.spark.clauses import PackClauses, unpacked, wrong_clauses
from thatch.spark.encoded import source_of
from thatch.spark.failures import map_batches, translated_errors
from thatch.spark.tables import SubscriptionFrame
from thatch.spark.text import name_sql
from thatch.table.table import SubscriptionTable


def load(
    reduced: DataFrame, subscriptions: DataFrame, space: Space, cover: str = "exact", **options: Any
) -> SubscriptionTable:
    """The table of some subscriptions and what `reduce` said of them. Active ones come first, in the order of their
    ids. With `on_error="skip"`, `reduce` left out what is wrong, and so is it here."""
    with translated_errors():
        proofs = certificates_of(reduced)
        regions = regions_of(subscriptions, space, proofs.keys())
    order = sorted(proofs, key=lambda id: (proofs[id] is not None, id))
    held = {id: names for id in order if (names := proofs[id]) is not None}
    return SubscriptionTable.of_reduced(space, {id: regions[id] for id in order}, held, cover, **options)


def decisions(reduced: DataFrame, subscriptions: DataFrame) -> dict[str, Decision]:
    """For `Broker.restored(…, decided=)`: what `reduce` said of subscriptions by the ids of the broker's records, each
    with the clause that it was said of."""
    ids = {name.lower(): name for name in subscriptions.columns}
    if "where" not in ids or subscriptions.schema[ids["id"]].dataType.typeName() != "string":
        raise CallerError("a broker knows subscriptions by clauses, under ids that are strings")
    with translated_errors():
        proofs = certificates_of(reduced)
        rows = subscriptions.select(name_sql(ids["id"]), name_sql(ids["where"])).toArrow()
    pairs = zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)
    return {id: Decision(where, proofs[id]) for id, where in pairs if id in proofs}


def certificates_of(reduced: DataFrame) -> dict[Any, tuple[Any, ...] | None]:
    """The certificate of each id; None for active ones."""
    rows = reduced.select("id", F.col("covered_by")).toArrow()
    pairs = zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)
    return {id: None if names is None else tuple(names) for id, names in pairs}


def regions_of(subscriptions: DataFrame, space: Space, wanted: Any = None) -> dict[Any, Region]:
    """The regions of subscriptions, in this space; clauses are parsed by workers. `wanted`: ids, and a clause that is
    wrong is an error only if it is of one of these."""
    known = SubscriptionFrame.of(subscriptions, space)
    if known.where is None:
        source, frame = source_of(known, skip=False)
        found: dict[Any, Region] = {}
        for batch in frame.toArrow().to_batches():
            boxed = source.boxed(batch, space)
            for row, id in enumerate(boxed.ids.to_pylist()):
                own = slice(boxed.starts[row], boxed.starts[row + 1])
                found[id] = Region(space, boxes_to_terms(boxed.low[own], boxed.high[own], space))
            found.update((boxed.ids[row].as_py(), region) for row, region in boxed.odd.items())
    else:
        clauses = known.frame.select(name_sql(known.id), name_sql(known.where))
        rows = map_batches(clauses, PackClauses(space), PackClauses.schema).toArrow()
        ids, regions, wrong = unpacked(rows.column("packed").to_pylist(), space)
        if wrong and wanted is None:
            raise wrong_clauses(wrong)
        found = dict(zip((id for part in ids for id in part.to_pylist()), regions, strict=True))
    missing = [] if wanted is None else [id for id in wanted if id not in found]
    if missing:
        raise CallerError(f"no subscription {missing[0]!r}, of which the reduction speaks: is it of other clauses?")
    return found
