"""Blocks: up to 64 boxes with their bounds coded as bytes, so that one vector instruction asks all 64 about a value.

For each attribute that any of its boxes bounds, a block has a *column*: a base and a scale, and for each box (a lane)
the byte of its lower bound and of its width. The code of a value is

    trunc(clamp((value - base) * scale + 1, 0, 254))

with the least finite bound at 1 and the greatest at 253. It is monotone, since every step of it is, rounding included.
So a value inside a box has a code inside the codes of the box: no match is lost, as long as boxes and events go
through this very expression (no fast-math, no fused multiply-add). And a code strictly inside is a value strictly
inside: such a lane needs no look at the exact bounds. An empty lane has lower bound 255 and width 0: no code reaches
it.

    value      0        10             20    25             bounds 10..20 and 15..25, base 10, scale 252.99/15
    code       0 .......1 ........... 169 .. 253            lanes: (1, 168), (85, 168); 12 has code 34: lane 0, surely
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from thatch.jit import intrinsic, kernel

LANES = 64
UNBOUNDED_ABOVE = 254
EMPTY_LANE = 255
INFINITE = 0x7FF0_0000_0000_0000  # of a double attribute


@kernel
def code(value: float, base: float, scale: float) -> int:
    return int(min(max((value - base) * scale + 1.0, 0.0), 254.0))


@intrinsic
def _as_double(typingctx: Any, bits: Any) -> Any:
    """The double with these bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@kernel
def position(coordinate: int, is_double: bool) -> float:
    """A float64 that does not fall as the coordinate grows. Bits of doubles are turned back into values: a block of
    prices 1 to 1,000 would otherwise span ten steps of bits, nearly all its codes spent below 1. NaN, which is above
    infinity, goes with infinity, and NULL with minus infinity."""
    if is_double:
        magnitude = coordinate if coordinate >= 0 else -coordinate
        value = _as_double(magnitude if magnitude < INFINITE else INFINITE)
        return value if coordinate >= 0 else -value
    return np.float64(coordinate)


@intrinsic
def lanes_at(typingctx: Any, codes: Any, column: Any, value: Any) -> Any:
    """The lanes of a column that hold a code, as bits: (code - low) mod 256 <= width, 64 at a time.

    LLVM makes one subtraction and one comparison of it where vectors have 64 bytes, and a few where they are shorter.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        low, width = _column(context, builder, signature, args)
        vector = low.type
        wanted = _splat(builder, vector, args[2])
        inside = builder.icmp_unsigned("<=", builder.sub(wanted, low), width)
        return builder.bitcast(inside, ir.IntType(64))

    return types.uint64(codes, types.int64, types.uint8), generate


@intrinsic
def lanes_around(typingctx: Any, codes: Any, column: Any, value: Any) -> Any:
    """Of the lanes that hold a code, those that hold it strictly inside: (code - low - 1) mod 256 < width - 1."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        low, width = _column(context, builder, signature, args)
        vector = low.type
        one = _splat(builder, vector, ir.Constant(ir.IntType(8), 1))
        beyond = builder.sub(builder.sub(_splat(builder, vector, args[2]), low), one)
        return builder.bitcast(builder.icmp_unsigned("<", beyond, builder.sub(width, one)), ir.IntType(64))

    return types.uint64(codes, types.int64, types.uint8), generate


@intrinsic
def lanes_meeting(typingctx: Any, codes: Any, column: Any, low: Any, high: Any) -> Any:
    """The lanes of a column that meet a run of codes, as bits."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        low, width = _column(context, builder, signature, args)
        vector = low.type
        begins = builder.icmp_unsigned("<=", low, _splat(builder, vector, args[3]))
        ends = builder.icmp_unsigned(">=", builder.add(low, width), _splat(builder, vector, args[2]))
        return builder.bitcast(builder.and_(begins, ends), ir.IntType(64))

    return types.uint64(codes, types.int64, types.uint8, types.uint8), generate


def _column(context: Any, builder: Any, signature: Any, args: Any) -> tuple[Any, Any]:
    """The lower bounds and the widths of column `args[1]` of the array codes[columns, 2, 64]."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    vector = ir.VectorType(ir.IntType(8), LANES)
    start = builder.mul(args[1], ir.Constant(ir.IntType(64), 2 * LANES))
    both = []
    for offset in (0, LANES):
        place = builder.gep(array.data, [builder.add(start, ir.Constant(ir.IntType(64), offset))])
        both.append(builder.load(builder.bitcast(place, ir.PointerType(vector)), align=1))
    return both[0], both[1]


def _splat(builder: Any, vector: Any, byte: Any) -> Any:
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)
