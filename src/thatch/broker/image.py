"""What a broker has worked out, beside its records: regions of clauses, and told sets with their certificates.

Records alone restore a broker; the image spares it to parse each clause and to ask a cover engine about each again. It
may be of an earlier moment than the records. What it does not know is worked out, and what it knows is taken only where
the clause is the same; of a certificate, only where all that it names is offered still.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from thatch.axis import StringAxis
from thatch.broker.tables import SUBSCRIPTIONS
from thatch.cover import Told
from thatch.errors import SnapshotError
from thatch.labels import Labels
from thatch.region import Region
from thatch.snapshot import Regions, pack_labels, pack_regions, unpack_ints, unpack_regions
from thatch.space import Space

if TYPE_CHECKING:
    from thatch.broker.broker import Broker


class Decision(NamedTuple):
    """What was decided about a subscription, by its clause; elsewhere, too: `thatch.spark.reduce` does so of
    millions."""

    where: str
    certificate: tuple[str, ...] | None  # None: it is told


ToldImage = dict[str, Decision]  # by id


class _Image(msgspec.Struct, forbid_unknown_fields=True):
    space: str
    labels: list[tuple[list[str], bytes]]
    wheres: list[str]
    regions: Regions
    told: dict[str, dict[str, ToldImage]]  # link -> table


class Known:
    """What a broker need not work out."""

    def __init__(self) -> None:
        self.regions: Mapping[str, Region] = {}
        self.told: Mapping[str, Mapping[str, ToldImage]] = {}
        self.decided: Mapping[str, Decision] = {}  # about subscriptions, wherever they are told

    def told_to(self, link: str, table: str) -> Mapping[str, Decision]:
        own = self.told.get(link, {}).get(table, {})
        return own or (self.decided if table == SUBSCRIPTIONS else {})


def image_of(broker: Broker) -> bytes:
    wheres = {entry.where: entry.region for table in broker.tables() for entry in table}
    told: dict[str, dict[str, ToldImage]] = {}
    for link in broker.links.values():
        for name, table in link.tables() if not link.is_client else ():
            if isinstance(table.told, Told):
                certificates = table.told.passive
                known = {id: Decision(where, certificates.get(id)) for id, where in table.wheres.items()}
                told.setdefault(link.name, {})[name] = known
    regions = pack_regions([region.terms_in(broker.space) for region in wheres.values()])
    image = _Image(broker.space.to_json(), pack_labels(broker.space), list(wheres), regions, told)
    return msgspec.msgpack.encode(image)


def read_image(data: bytes, space: Space) -> Known:
    """For a space that nobody has used yet: its strings get the labels of the image. Nothing, if that is of another."""
    known = Known()
    try:
        image = msgspec.msgpack.decode(data, type=_Image)
        if image.space != space.to_json():
            return known
        strings = [each.axis for each in space.attributes if isinstance(each.axis, StringAxis)]
        for axis, (cuts, labels) in zip(strings, image.labels, strict=True):
            axis.labels = Labels.of_pairs(cuts, unpack_ints(labels).tolist())
        regions = unpack_regions(image.regions, space)
    except (msgspec.DecodeError, RecursionError, ValueError, SnapshotError) as error:
        raise SnapshotError(f"the image of a broker: {error}") from None
    known.regions = dict(zip(image.wheres, regions, strict=True))
    known.told = image.told
    return known
