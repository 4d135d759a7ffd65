"""Decimals as numbers, and maps of which one entry cannot be read."""

from __future__ import annotations

import pytest

from twinbus.amqp.codec.encoding import Array, encode
from twinbus.amqp.codec.types import Char, Decimal32, Decimal64, Decimal128, Described, Symbol, Value
from twinbus.amqp.message.plain_values import number_of, plain, plain_map
from twinbus.amqp.message.sections import encode_message, walk

DECIMALS = [
    (Decimal32, "32000019", "2.5"),
    (Decimal32, "b2000019", "-2.5"),
    (Decimal32, "32800000", "0"),
    (Decimal32, "6cb8967f", "9999999"),  # the coefficient needs its 24th bit
    (Decimal32, "77f8967f", "9.999999E+96"),
    (Decimal32, "6cb89680", "0"),  # eight digits: one too many
    (Decimal32, "78000000", "Infinity"),
    (Decimal32, "f8000000", "-Infinity"),
    (Decimal32, "7c000000", "NaN"),
    (Decimal64, "31a00000000004d2", "123.4"),
    (Decimal128, "303c000000000000002bdc545d6b4b87", "123456789012345.67"),
]


@pytest.mark.parametrize(("kind", "encoded", "number"), DECIMALS)
def test_a_decimal_is_the_number_it_stands_for(kind: type[Decimal32], encoded: str, number: str) -> None:
    assert str(number_of(kind(bytes.fromhex(encoded)))) == number


KEYS: list[tuple[Value, Value]] = [
    ({Char("x"): 1}, {"x": 1}),
    ({Array([1, 2]): 1}, {"[1, 2]": 1}),
    (Described(Symbol("d"), {Described(Symbol("d"), "k"): [Char("y")]}), {"k": ["y"]}),
]


@pytest.mark.parametrize(("given", "shown"), KEYS)
def test_keys_of_every_type_stay_keys(given: Value, shown: Value) -> None:
    assert plain(given) == shown


def test_an_entry_that_cannot_be_read_does_not_hide_the_others() -> None:
    whole = encode_message(application_properties={"bad": "??", "n": 7})
    broken = whole.replace(encode("??"), b"\xa1\x02\xff\xfe")  # no UTF-8
    found, problems = plain_map(broken, walk(broken).application_properties)
    assert found == {"n": 7}
    assert list(problems) == ["bad"]
    assert "UTF-8" in problems["bad"]
