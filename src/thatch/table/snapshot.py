"""A table on disk: regions as coordinates together with what these mean, so that loading parses and decides nothing.

    THATCH TABLE 1\n | length of the body, 8 bytes | CRC-32 of the body, 4 bytes | body: MessagePack

The body has typed facts (the space, ids, owners) and flat arrays of little-endian numbers. String coordinates are
labels; the labels that were in use are part of the body (the index embeds its encoder).

A file is written next to its place, forced to the disk, and renamed over the old one: a reader finds
the old file or the new one, whenever the machine stops.
"""

from __future__ import annotations

import errno
import os
import secrets
import zlib
from pathlib import Path
from typing import Any

import msgspec

from thatch.errors import SnapshotError, SpaceError
from thatch.region.packing import PackedLabels, Regions, restore_labels
from thatch.space.space import Space

MAGIC = b"THATCH TABLE 1\n"


class Body(msgspec.Struct, forbid_unknown_fields=True):
    space: str
    cover: str | None
    retract: bool | str
    groups: bool
    options: dict[str, Any]
    labels: PackedLabels
    ids: list[str | int]  # in order of arrival
    owners: dict[int, str]  # by position
    expiries: dict[int, float]
    passive: bytes  # int64: positions
    certificates_at: bytes  # int64 [passive + 1]
    certificates: bytes  # int64: positions
    regions: Regions


def write(path: Path, body: Body) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such folder", str(path.parent))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
    encoded = msgspec.msgpack.encode(body)
    head = MAGIC + len(encoded).to_bytes(8, "little") + zlib.crc32(encoded).to_bytes(4, "little")
    name = path.parent / f".{path.name[:64]}.{secrets.token_hex(8)}.part"
    try:
        with open(name, "xb") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            file.write(head)
            file.write(encoded)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # the new name, too, survives a power cut
    finally:
        os.close(directory)


def read(path: Path) -> Body:
    data = path.read_bytes()
    start = len(MAGIC) + 12
    if not data.startswith(MAGIC):
        raise SnapshotError(f"{path}: not a snapshot of a table, or of another version of the format")
    length = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    if len(data) - start != length:
        raise SnapshotError(f"{path}: damaged: {length:,} bytes were written, {max(len(data) - start, 0):,} are there")
    body = memoryview(data)[start:]
    if zlib.crc32(body) != int.from_bytes(data[start - 4 : start], "little"):
        raise SnapshotError(f"{path}: damaged: the checksum is wrong")
    try:
        return msgspec.msgpack.decode(body, type=Body)
    except (msgspec.DecodeError, RecursionError):
        raise SnapshotError(f"{path}: not a snapshot that this version can read") from None


def unpack_space(body: Body) -> Space:
    """A space of its own, whose strings have the labels of the file."""
    try:
        space = Space.from_json(body.space)
        restore_labels(space, body.labels)
    except (SpaceError, ValueError) as error:
        raise SnapshotError(f"the space of a snapshot: {error}") from None
    return space
