"""A number type for numba that is really eight numbers: one vector register.

Compilers vectorise loops when they can see that they may; code in lanes is vector code by
construction, on any processor, without flags that loosen the rules of arithmetic. One
``Lanes`` value holds the same quantity of eight examples, so a kernel reads like the code for
one of them, and no example can touch another.

What follows is known to compiled code alone. This module needs numba; nothing imports it before
a kernel is asked for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from spen.kernels.cpu import WIDTH

_VECTOR = ir.VectorType(ir.FloatType(), WIDTH)
_BITS = ir.VectorType(ir.IntType(32), WIDTH)
_NOTHING = ir.Constant(ir.IntType(8).as_pointer(), None)


class LanesType(types.Type):
    """The type of a vector of ``WIDTH`` float32."""

    def __init__(self) -> None:
        super().__init__(name=f"Lanes{WIDTH}")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, _VECTOR)


_lanes = LanesType()


_instruction: Any = intrinsic
"""Makes a function of compiled code from one that gives its signature and code."""


def _code(emit: Callable[..., Any]) -> Callable[..., Any]:
    return lambda context, builder, signature, args: emit(builder, *args)


def _splat(number: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [number] * WIDTH)


def _int_splat(number: int) -> ir.Constant:
    return ir.Constant(_BITS, [number] * WIDTH)


def _spread(builder: Any, scalar: Any) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    one = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, _int_splat(0))


# Memory. An address is one number where numba's array is seven, and has no owner: the array must
# outlive every use of it.


@_instruction
def address(typingctx: Any, array: Any) -> Any:
    """Return where the entries of an array are."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), code


@_instruction
def offset(typingctx: Any, place: Any, index: Any) -> Any:
    """Return the address of a later entry."""
    return place(place, types.intp), _code(lambda builder, place, i: builder.gep(place, [i]))


@_instruction
def get(typingctx: Any, place: Any, index: Any) -> Any:
    """Read one entry."""

    def emit(builder: Any, place: Any, index: Any) -> Any:
        return builder.load(builder.gep(place, [index]))

    return place.dtype(place, types.intp), _code(emit)


@_instruction
def put(typingctx: Any, place: Any, index: Any, value: Any) -> Any:
    """Write one entry."""

    def emit(builder: Any, place: Any, index: Any, value: Any) -> Any:
        builder.store(value, builder.gep(place, [index]))
        return _NOTHING

    return types.void(place, types.intp, place.dtype), _code(emit)


@_instruction
def load(typingctx: Any, place: Any, index: Any) -> Any:
    """Read ``WIDTH`` consecutive entries."""

    def emit(builder: Any, place: Any, index: Any) -> Any:
        first = builder.gep(place, [index])
        vector = builder.load(builder.bitcast(first, _VECTOR.as_pointer()))
        vector.align = 4
        return vector

    return _lanes(place, types.intp), _code(emit)


@_instruction
def store(typingctx: Any, place: Any, index: Any, value: Any) -> Any:
    """Write ``WIDTH`` consecutive entries."""

    def emit(builder: Any, place: Any, index: Any, value: Any) -> Any:
        first = builder.gep(place, [index])
        builder.store(value, builder.bitcast(first, _VECTOR.as_pointer()), align=4)
        return _NOTHING

    return types.void(place, types.intp, _lanes), _code(emit)


@_instruction
def load_spread(typingctx: Any, place: Any, index: Any) -> Any:
    """Read one entry into every lane."""

    def emit(builder: Any, place: Any, index: Any) -> Any:
        return _spread(builder, builder.load(builder.gep(place, [index])))

    return _lanes(place, types.intp), _code(emit)


@_instruction
def take_ticket(typingctx: Any, counter: Any) -> Any:
    """Return the number at an address and raise it by one, as if no other thread ran."""

    def emit(builder: Any, counter: Any) -> Any:
        return builder.atomic_rmw("add", counter, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), _code(emit)


# Choices, by a bit for each lane.


def _comparison(sign: str) -> Any:
    def emit(builder: Any, a: Any, b: Any) -> Any:
        which = builder.fcmp_ordered(sign, a, b)
        return builder.zext(builder.bitcast(which, ir.IntType(WIDTH)), ir.IntType(64))

    def typer(typingctx: Any, a: Any, b: Any) -> Any:
        return types.int64(_lanes, _lanes), _code(emit)

    return _instruction(typer)


@_instruction
def choose(typingctx: Any, bits: Any, a: Any, b: Any) -> Any:
    """The lanes of a whose bit is set, and those of b elsewhere."""

    def emit(builder: Any, bits: Any, a: Any, b: Any) -> Any:
        narrow = builder.trunc(bits, ir.IntType(WIDTH))
        which = builder.bitcast(narrow, ir.VectorType(ir.IntType(1), WIDTH))
        return builder.select(which, a, b)

    return _lanes(types.int64, _lanes, _lanes), _code(emit)


above = _comparison(">")
"""A bit for each lane: a > b."""
below = _comparison("<")
"""A bit for each lane: a < b."""
reaches = _comparison(">=")
"""A bit for each lane: a >= b."""


# Arithmetic.


@_instruction
def spread(typingctx: Any, number: Any) -> Any:
    """Copy one number into every lane."""
    return _lanes(types.float32), _code(_spread)


def _unary(emit: Callable[[Any, Any], Any]) -> Any:
    def typer(typingctx: Any, a: Any) -> Any:
        return _lanes(_lanes), _code(emit)

    return _instruction(typer)


def _binary(emit: Callable[[Any, Any, Any], Any]) -> Any:
    def typer(typingctx: Any, a: Any, b: Any) -> Any:
        return _lanes(_lanes, _lanes), _code(emit)

    return _instruction(typer)


def _ternary(emit: Callable[[Any, Any, Any, Any], Any]) -> Any:
    def typer(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        return _lanes(_lanes, _lanes, _lanes), _code(emit)

    return _instruction(typer)


def _call(name: str, count: int) -> Callable[..., Any]:
    """Return a call of one of LLVM's own functions on vectors."""

    def emit(builder: Any, *args: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * count)
        name_here = f"llvm.{name}.v{WIDTH}f32"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name_here), args)

    return emit


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", b, a), b, a)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", b, a), b, a)


def _if_above(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), c, _splat(0.0))


def _if_nan(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.select(builder.fcmp_unordered("uno", a, a), b, c)


def _with_exponent(builder: Any, a: Any, shifted: Any) -> Any:
    power = builder.shl(builder.bitcast(shifted, _BITS), _int_splat(23))
    return builder.bitcast(builder.add(builder.bitcast(a, _BITS), power), _VECTOR)


def _mantissa(builder: Any, a: Any) -> Any:
    kept = builder.and_(builder.bitcast(a, _BITS), _int_splat(0x007FFFFF))
    return builder.bitcast(builder.or_(kept, _int_splat(0x3F800000)), _VECTOR)


def _exponent(builder: Any, a: Any) -> Any:
    biased = builder.ashr(builder.bitcast(a, _BITS), _int_splat(23))
    return builder.sitofp(builder.sub(biased, _int_splat(127)), _VECTOR)


multiply_add = _ternary(_call("fmuladd", 3))
"""a b + c, in one rounding where the machine can."""
absolute = _unary(_call("fabs", 1))
smaller = _binary(_smaller)
"""The smaller of two; where one is nan, the first."""
larger = _binary(_larger)
"""The larger of two; where one is nan, the first."""
if_above = _ternary(_if_above)
"""c where a > b, and 0 elsewhere."""
if_nan = _ternary(_if_nan)
"""b where a is nan, and c elsewhere."""
with_exponent = _binary(_with_exponent)
"""a · 2^k, with k in the last bits of the second."""
mantissa = _unary(_mantissa)
"""The m of a = m · 2^k, from 1 up to 2, for positive a."""
exponent = _unary(_exponent)
"""The k of a = m · 2^k, for positive a."""


def _operator(sign: Callable[[Any, Any], Any], emit: Callable[[Any, Any, Any], Any]) -> None:
    @type_callable(sign)
    def type_operator(context: Any) -> Any:
        def result(a: Any, b: Any) -> Any:
            return _lanes if a == _lanes and b == _lanes else None

        return result

    lower_builtin(sign, _lanes, _lanes)(_code(emit))


_operator(operator.add, lambda builder, a, b: builder.fadd(a, b))
_operator(operator.sub, lambda builder, a, b: builder.fsub(a, b))
_operator(operator.mul, lambda builder, a, b: builder.fmul(a, b))
_operator(operator.truediv, lambda builder, a, b: builder.fdiv(a, b))
