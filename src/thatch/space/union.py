"""What one space adds to another: the union of two that have grown from one."""

from __future__ import annotations

from typing import NamedTuple

from thatch.errors import SpaceError
from thatch.space.attribute import Attribute
from thatch.space.axis import EnumAxis
from thatch.space.space import Space


class Union(NamedTuple):
    space: Space  # extends the first one
    conflicts: list[str]  # what of the second one cannot be added, and why


def union_of(space: Space, wanted: Space) -> Union:
    """A space, and at its end what another one has besides: nullable attributes, and values of enums.

    >>> first, second = Space.parse("x int, kind enum('a', 'b')"), Space.parse("x int, kind enum('a', 'c'), y int")
    >>> print(union_of(first, second).space)
    x int, kind enum('a', 'b', 'c'), y int
    """
    if space.extends(wanted):
        return Union(space, [])
    if wanted.extends(space):
        return Union(wanted, [])
    attributes, conflicts = list(space.attributes), list[str]()
    if space.time_zone != wanted.time_zone:
        conflicts.append(f"the time zone is {space.time_zone}, not {wanted.time_zone}")
    for each in wanted.attributes:
        at = space.index(each.name)
        joined = _joined(None if at is None else attributes[at], each)
        if joined is None:
            has = "it is new, and not nullable" if at is None else f"there is {attributes[at]}"
            conflicts.append(f"{each}: {has}")
        elif at is None:
            attributes.append(joined)
        else:
            attributes[at] = joined
    try:
        return Union(Space(attributes, space.time_zone), conflicts)
    except SpaceError as error:  # a column, and a field of it
        return Union(space, [*conflicts, str(error)])


def _joined(known: Attribute | None, wanted: Attribute) -> Attribute | None:
    """An attribute with what another one of its name adds; None if they do not go together."""
    if known is None:
        return wanted if wanted.nullable else None
    if known.extends(wanted):
        return known
    if wanted.extends(known):
        return wanted
    one, other = known.axis, wanted.axis
    if not (isinstance(one, EnumAxis) and isinstance(other, EnumAxis)):
        return None
    if (known.path, known.nullable) != (wanted.path, wanted.nullable):
        return None
    values = dict.fromkeys((*one.values, *other.values))
    return Attribute(known.name, EnumAxis(list(values)), known.nullable, path=known.path)
