"""What a broker has worked out, in addition to its records: regions of clauses, and active sets with certificates.

Records alone restore a broker; the image spares it to parse each clause and to ask a cover engine about each again. It
may be of an earlier moment than the records. What it does not know is worked out, and what it knows is taken only where
the clause is the same; of a certificate, only where all that it names is offered still.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from thatch.errors import SnapshotError
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.region.packing import PackedLabels, Regions, pack_labels, pack_regions, restore_labels, unpack_regions
from thatch.region.region import Region
from thatch.space.space import Space


class Decision(NamedTuple):
    """What was decided about a subscription, by its clause; elsewhere, too: `thatch.spark.reduce` does so of
    millions."""

    where: str
    certificate: tuple[str, ...] | None  # None: it is active


Decisions = dict[str, Decision]  # by id


class _Image(msgspec.Struct, forbid_unknown_fields=True):
    space: str
    labels: PackedLabels
    wheres: list[str]
    regions: Regions
    decisions: dict[str, dict[str, Decisions]] = msgspec.field(name="told")  # link -> table; the name on disk stays


@dataclass(frozen=True)
class Known:
    """What a broker need not work out."""

    regions: Mapping[str, Region] = field(default_factory=dict)
    decisions: Mapping[str, Mapping[str, Decisions]] = field(default_factory=dict)
    decided: Mapping[str, Decision] = field(default_factory=dict)  # about subscriptions, on whatever link

    def decisions_for(self, link: str, table: str) -> Mapping[str, Decision]:
        own = self.decisions.get(link, {}).get(table, {})
        return own or (self.decided if table == SUBSCRIPTIONS else {})


def write_image(
    space: Space, regions: Mapping[str, Region], decisions: Mapping[str, Mapping[str, Mapping[str, Decision]]]
) -> bytes:
    """`regions` by clause; `decisions` by link, table and id."""
    packed = pack_regions([region.terms_in(space) for region in regions.values()])
    decided = {link: {table: dict(each) for table, each in tables.items()} for link, tables in decisions.items()}
    image = _Image(space.to_json(), pack_labels(space.label_codes), list(regions), packed, decided)
    return msgspec.msgpack.encode(image)


def read_image(data: bytes, space: Space) -> Known:
    """For a space that nobody has used yet: its strings get the labels of the image. Nothing, if that is of another."""
    try:
        image = msgspec.msgpack.decode(data, type=_Image)
        if image.space != space.to_json():
            return Known()
        restore_labels(space, image.labels)
        regions = unpack_regions(image.regions, space)
    except (msgspec.DecodeError, RecursionError, ValueError, SnapshotError):
        raise SnapshotError("the image of a broker is damaged, or of another version") from None
    return Known(dict(zip(image.wheres, regions, strict=True)), image.decisions)
