"""Values of every AMQP type as values that every client can read.

A char and a decimal become text, an array a list, a described value its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from twinbus.amqp.codec.decoding import decode
from twinbus.amqp.codec.encoding import Array
from twinbus.amqp.codec.types import Char, Decimal32, Decimal64, Decimal128, Described, Value, text_of
from twinbus.amqp.message.message_builder import Span
from twinbus.amqp.message.rewriting import pair_offsets
from twinbus.errors import DecodeError

ITEMS_MAX = 65_536
"""The limit of the official Python client for entries of a list or map."""

Problems = dict[str, str]
"""By name: why it cannot be read."""


def plain(value: Value) -> Value:
    """The value as every client can read it. Raises `DecodeError` for a list or map with too many entries."""
    match value:
        case Char():
            return str(value)
        case Decimal32() | Decimal64() | Decimal128():
            return str(number_of(value))
        case Described():
            return plain(value.value)
        case Mapping():
            _check(len(value) * 2, f"a map of {len(value):,} pairs")
            return {_key(key): plain(each) for key, each in value.items()}
        case list() | Array():
            _check(len(value), f"a list of {len(value):,} values")
            return [plain(each) for each in value]
        case _:
            return value


def _key(value: Value) -> Value:
    found = plain(value)
    return str(found) if isinstance(found, list | dict) else found


def _check(count: int, what: str) -> None:
    if count > ITEMS_MAX:
        raise DecodeError(f"{what} is too long to be shown (at most {ITEMS_MAX:,})")


def plain_map(message: bytes, span: Span | None) -> tuple[dict[str, Value], Problems]:
    """The readable entries of a map section by name, and why others cannot be read."""
    found: dict[str, Value] = {}
    problems: Problems = {}
    if span is None:
        return found, problems
    try:
        offsets = pair_offsets(message, span)
    except DecodeError as error:
        return found, {"": str(error)}
    for at in range(0, len(offsets) - 1, 2):
        name = f"entry {at // 2 + 1}"
        try:
            name = text_of(plain(decode(message, offsets[at])[0]))
            found[name] = plain(decode(message, offsets[at + 1])[0])
        except DecodeError as error:
            problems[name] = str(error)
    return found, problems


# --- decimals of IEEE 754-2008 with a binary coefficient -------------------------------------------

_FORMS = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}
"""By length: the bits of the exponent, what is added to it, and the digits at most."""


def number_of(value: Decimal32 | Decimal64 | Decimal128) -> Decimal:
    """The number, exactly."""
    exponent_bits, bias, digits_max = _FORMS[len(value)]
    bits, width = int.from_bytes(value, "big"), 8 * len(value) - 1 - exponent_bits
    sign = bits >> (8 * len(value) - 1)
    first = value[0] & 0x7F
    if first >> 3 == 0b1111:
        return Decimal(("-" if sign else "") + ("NaN" if first & 0b100 else "Infinity"))
    if first >> 5 == 0b11:  # a coefficient that starts with an implicit 100
        width -= 2
        coefficient = (0b100 << width) | (bits & ((1 << width) - 1))
    else:
        coefficient = bits & ((1 << width) - 1)
    if coefficient >= 10**digits_max:
        coefficient = 0  # by the standard
    exponent = ((bits >> width) & ((1 << exponent_bits) - 1)) - bias
    return Decimal((sign, tuple(map(int, str(coefficient))), exponent))
