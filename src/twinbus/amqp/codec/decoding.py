"""AMQP 1.0 bytes to Python values, and stepping over a value without building it.

The only exception, whatever the bytes are, is DecodeError. Work and memory stay in proportion to the bytes given: a
size or count is trusted only if it fits the bytes given.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import TypeAlias

from twinbus.amqp.codec.encoding import FIXED, NESTING_MAX, ZERO_WIDTH, Array
from twinbus.amqp.codec.types import (
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Repeated,
    Symbol,
    UInt,
    ULong,
    Value,
)
from twinbus.errors import DecodeError

Buffer: TypeAlias = bytes | bytearray | memoryview
Read: TypeAlias = tuple[Value, int]
Reader: TypeAlias = Callable[[Buffer, int, int], Read]
"""(buffer, offset after the constructor, depth) -> (value, offset after the value)"""

ZERO_WIDTH_ITEMS_MAX = 65_536

# A peer can choose uuids and described values that all have the same hash; a map of many would take quadratic time.
SLOW_KEYS_MAX = 1024

_U32 = struct.Struct(">I")
_SIZE_AND_COUNT = struct.Struct(">II")


def decode(buffer: Buffer, offset: int = 0) -> Read:
    """The value at `offset`, and where the next one starts."""
    try:
        return READERS[buffer[offset]](buffer, offset + 1, 0)
    except (IndexError, struct.error):
        raise cut_short(buffer, offset) from None


def skip(buffer: Buffer, offset: int = 0) -> int:
    """Where the value at `offset` ends; its content is not checked."""
    start, pending = offset, 1
    try:
        while pending:
            width = WIDTHS[buffer[offset]]
            if width >= 0:
                offset += 1 + width
            elif width == SIZE_BYTE:
                offset += 2 + buffer[offset + 1]
            elif width == SIZE_WORD:
                offset += 5 + _U32.unpack_from(buffer, offset + 1)[0]
            elif width == DESCRIPTION:  # a descriptor and a value stand in place of one value
                offset += 1
                pending += 2
            else:
                raise unknown(buffer, offset)
            pending -= 1
    except (IndexError, struct.error):
        raise cut_short(buffer, start) from None
    if offset > len(buffer):
        raise cut_short(buffer, start)
    return offset


def count_elements(buffer: Buffer, offset: int, most: int) -> int:
    """How many values the value at `offset` is made of, itself included. Nothing is built.

    DecodeError if there are more than `most`: one byte on the wire can become a hundred in memory. What is inside items
    of an array is not looked at: each of its bytes counts for one.
    """
    found, pending, at = 0, 1, offset
    try:
        while pending:
            found += 1
            pending -= 1
            code = buffer[at]
            if code == 0x00:
                at, pending = at + 1, pending + 2
            elif code in _LISTS_AND_MAPS:
                count, at, _ = compound(buffer, at + 1, code >= 0xD0)
                pending += count
            elif code in _ARRAYS:
                count, start, end = compound(buffer, at + 1, code >= 0xF0)
                is_plain = buffer[start] != 0x00 and buffer[start] < 0xC0
                found, at = found + (count if is_plain else count + end - start), end
            else:
                at = skip(buffer, at)
            if found + pending > most:
                raise DecodeError(f"the value at offset {offset} has more than {most} elements")
    except (IndexError, struct.error):
        raise cut_short(buffer, offset) from None
    return found


_LISTS_AND_MAPS = frozenset((0xC0, 0xC1, 0xD0, 0xD1))
_ARRAYS = frozenset((0xE0, 0xF0))


def after_descriptor(buffer: Buffer, offset: int) -> int:
    """Where the value of the described type at `offset` starts."""
    if buffer[offset + 1] == 0x53:  # smallulong, the usual form
        return offset + 3
    return skip(buffer, offset + 1)


def item_offsets(buffer: Buffer, offset: int) -> list[int]:
    """Where the items of the list at `offset`, or keys and values of the map, start; then where the last one ends."""
    try:
        code = buffer[offset]
        if code == 0x45:
            return [offset + 1]
        count, at, end = compound(buffer, offset + 1, code >= 0xD0)
        _check_count(count, at, end)
        return _step_over(buffer, at, count, end)
    except (IndexError, struct.error):
        raise cut_short(buffer, offset) from None


def _step_over(buffer: Buffer, at: int, count: int, end: int) -> list[int]:
    offsets = [at]
    widths = WIDTHS
    for _ in range(count):
        width = widths[buffer[at]]
        if width >= 0:
            at += 1 + width
        elif width == SIZE_BYTE:
            at += 2 + buffer[at + 1]
        else:
            at = skip(buffer, at)
        offsets.append(at)
    if at != end:
        raise DecodeError(f"entries at offset {offsets[0]} end at {at}, their size says {end}")
    return offsets


def _check_count(count: int, at: int, end: int) -> None:
    if count > end - at:
        raise DecodeError(f"count {count} before offset {at} does not fit into {end - at} bytes")


def cut_short(buffer: Buffer, offset: int) -> DecodeError:
    return DecodeError(f"the value at offset {offset} does not end within the {len(buffer)} bytes given")


def unknown(buffer: Buffer, offset: int) -> DecodeError:
    return DecodeError(f"0x{buffer[offset]:02x} at offset {offset} is not an AMQP constructor")


def _read_unknown(buffer: Buffer, offset: int, _depth: int) -> Read:
    raise unknown(buffer, offset - 1)


def _constant_reader(value: Value) -> Reader:
    return lambda _buffer, offset, _depth: (value, offset)


def _read_boolean(buffer: Buffer, offset: int, _depth: int) -> Read:
    octet = buffer[offset]
    if octet > 1:
        raise DecodeError(f"boolean at offset {offset} must be 0 or 1, got {octet}")
    return octet == 1, offset + 1


def _octet_reader(kind: Callable[[int], Value]) -> Reader:
    return lambda buffer, offset, _depth: (kind(buffer[offset]), offset + 1)


def _number_reader(kind: Callable[[Value], Value], number: struct.Struct) -> Reader:
    unpack, size = number.unpack_from, number.size
    return lambda buffer, offset, _depth: (kind(unpack(buffer, offset)[0]), offset + size)


def _read_double(buffer: Buffer, offset: int, _depth: int) -> Read:
    return _DOUBLE.unpack_from(buffer, offset)[0], offset + 8


_DOUBLE = FIXED[0x82][1]


def _read_char(buffer: Buffer, offset: int, _depth: int) -> Read:
    point: int = _U32.unpack_from(buffer, offset)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"char at offset {offset} is not a Unicode character: 0x{point:x}")
    return Char(chr(point)), offset + 4


def _raw_reader(kind: Callable[[bytes], Value], width: int) -> Reader:
    def read(buffer: Buffer, offset: int, _depth: int) -> Read:
        end = offset + width
        if end > len(buffer):
            raise cut_short(buffer, offset)
        return kind(bytes(buffer[offset:end])), end

    return read


def _octet_size(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Start and end of what a one-byte size announces."""
    start = offset + 1
    end = start + buffer[offset]
    if end > len(buffer):
        raise cut_short(buffer, offset)
    return start, end


def _word_size(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Start and end of what a four-byte size announces."""
    start = offset + 4
    end = start + _U32.unpack_from(buffer, offset)[0]
    if end > len(buffer):
        raise cut_short(buffer, offset)
    return start, end


Sizer: TypeAlias = Callable[[Buffer, int], tuple[int, int]]


def _binary_reader(size: Sizer) -> Reader:
    def read(buffer: Buffer, offset: int, _depth: int) -> Read:
        start, end = size(buffer, offset)
        return bytes(buffer[start:end]), end

    return read


def _text_reader(size: Sizer, kind: Callable[[str], str] | None = None) -> Reader:
    def read(buffer: Buffer, offset: int, _depth: int) -> Read:
        start, end = size(buffer, offset)
        try:
            text = str(buffer[start:end], "utf-8")
        except UnicodeDecodeError:
            raise DecodeError(f"text at offset {start} is not UTF-8") from None
        return (text if kind is None else kind(text)), end

    return read


def compound(buffer: Buffer, offset: int, wide: bool) -> tuple[int, int, int]:
    """(count, start of the entries, end) of a list, map or array whose size field is at `offset`."""
    if wide:
        size, count = _SIZE_AND_COUNT.unpack_from(buffer, offset)
        start, end = offset + 8, offset + 4 + size
    else:
        size, count = buffer[offset], buffer[offset + 1]
        start, end = offset + 2, offset + 1 + size
    if end > len(buffer) or start > end:
        raise DecodeError(f"size {size} at offset {offset} does not fit: {len(buffer)} bytes given")
    return count, start, end


def _deeper(offset: int, depth: int) -> int:
    if depth >= NESTING_MAX:
        raise DecodeError(f"value at offset {offset} is nested more than {NESTING_MAX} deep")
    return depth + 1


def _read_items(buffer: Buffer, offset: int, depth: int, wide: bool) -> tuple[list[Value], int]:
    depth = _deeper(offset, depth)
    count, at, end = compound(buffer, offset, wide)
    _check_count(count, at, end)
    readers = READERS
    items = []
    for _ in range(count):
        item, at = readers[buffer[at]](buffer, at + 1, depth)
        items.append(item)
    if at != end:
        raise DecodeError(f"entries at offset {offset} end at {at}, their size says {end}")
    return items, end


def _list_reader(wide: bool) -> Reader:
    return lambda buffer, offset, depth: _read_items(buffer, offset, depth, wide)


def _map_reader(wide: bool) -> Reader:
    def read(buffer: Buffer, offset: int, depth: int) -> Read:
        items, end = _read_items(buffer, offset, depth, wide)
        if len(items) % 2:
            raise DecodeError(f"map at offset {offset} has a key without a value")
        keys = items[::2]
        if len(keys) > SLOW_KEYS_MAX and not all(isinstance(key, str | bytes | int) for key in keys):
            raise DecodeError(
                f"map at offset {offset} has more than {SLOW_KEYS_MAX} keys, not all text, bytes or integers"
            )
        try:
            return dict(zip(keys, items[1::2], strict=True)), end
        except TypeError:
            raise DecodeError(f"map at offset {offset} has a list or a map as key") from None

    return read


def _read_described(buffer: Buffer, offset: int, depth: int) -> Read:
    depth = _deeper(offset, depth)
    descriptor, at = READERS[buffer[offset]](buffer, offset + 1, depth)
    value, at = READERS[buffer[at]](buffer, at + 1, depth)
    return Described(descriptor, value), at


def _array_reader(wide: bool) -> Reader:
    def read(buffer: Buffer, offset: int, depth: int) -> Read:
        depth = _deeper(offset, depth)
        count, at, end = compound(buffer, offset, wide)
        descriptors, at = _array_descriptors(buffer, at, depth)
        code = buffer[at]
        items, at = _array_items(buffer, at + 1, count, end, depth)
        if at != end:
            raise DecodeError(f"array at offset {offset} ends at {at}, its size says {end}")
        return Array(items, code, descriptors), end

    return read


def _array_descriptors(buffer: Buffer, at: int, depth: int) -> tuple[tuple[Value, ...], int]:
    descriptors = []
    while buffer[at] == 0x00:
        descriptor, at = READERS[buffer[at + 1]](buffer, at + 2, depth)
        descriptors.append(descriptor)
    return tuple(descriptors), at


def _array_items(buffer: Buffer, at: int, count: int, end: int, depth: int) -> tuple[list[Value] | Repeated, int]:
    code = buffer[at - 1]
    if code in ZERO_WIDTH:
        if count > ZERO_WIDTH_ITEMS_MAX:
            raise DecodeError(f"array at offset {at} has {count} items of no width, limit {ZERO_WIDTH_ITEMS_MAX}")
        return Repeated(ZERO_WIDTH[code], count), at
    _check_count(count, at, end)
    read = READERS[code]
    items = []
    for _ in range(count):
        item, at = read(buffer, at, depth)
        items.append(item)
    return items, at


SIZE_BYTE, SIZE_WORD, DESCRIPTION, UNKNOWN = -1, -2, -3, -4


def _readers() -> list[Reader]:
    readers: list[Reader] = [_read_unknown] * 256
    readers[0x00] = _read_described
    for code, value in ZERO_WIDTH.items():
        readers[code] = _constant_reader(value)
    readers[0x45] = lambda _buffer, offset, _depth: ([], offset)  # a new list each time
    for code, (kind, number) in FIXED.items():
        readers[code] = _number_reader(kind, number)
    readers[0x52], readers[0x53] = _octet_reader(UInt), _octet_reader(ULong)
    readers[0x56], readers[0x73], readers[0x82] = _read_boolean, _read_char, _read_double
    for code, raw, width in ((0x74, Decimal32, 4), (0x84, Decimal64, 8), (0x94, Decimal128, 16)):
        readers[code] = _raw_reader(raw, width)
    readers[0x98] = _raw_reader(lambda content: uuid.UUID(bytes=content), 16)
    readers[0xA0], readers[0xB0] = _binary_reader(_octet_size), _binary_reader(_word_size)
    readers[0xA1], readers[0xB1] = _text_reader(_octet_size), _text_reader(_word_size)
    readers[0xA3], readers[0xB3] = _text_reader(_octet_size, Symbol), _text_reader(_word_size, Symbol)
    for narrow, reader in ((0xC0, _list_reader), (0xC1, _map_reader), (0xE0, _array_reader)):
        readers[narrow], readers[narrow + 0x10] = reader(False), reader(True)
    return readers


def _widths() -> tuple[int, ...]:
    """By constructor: the bytes that follow it, or how to find out."""
    by_category = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
    by_category |= dict.fromkeys((0xA, 0xC, 0xE), SIZE_BYTE) | dict.fromkeys((0xB, 0xD, 0xF), SIZE_WORD)
    known = [code for code, reader in enumerate(READERS) if reader is not _read_unknown]
    widths = {code: by_category[code >> 4] for code in known if code} | {0x00: DESCRIPTION}
    return tuple(widths.get(code, UNKNOWN) for code in range(256))


READERS = _readers()
WIDTHS = _widths()
