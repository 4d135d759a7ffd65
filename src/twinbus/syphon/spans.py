"""Deliveries that are settled together, told as ranges: one disposition for first..last instead of one for each.

Delivery ids are counters of 32 bits that start again at zero. Inside the pump they go on counting, so that they can be
sorted; on the wire they are cut again, and a range ends where the counter does.
"""

from __future__ import annotations

from collections.abc import Iterator

from twinbus.amqp.serial import SERIAL_MASK, steps

ROUND = SERIAL_MASK + 1


def unwrapped(delivery_id: int, latest: int) -> int:
    """The delivery as a number that never starts again; `latest` is the one of a delivery near it."""
    return latest + steps(latest & SERIAL_MASK, delivery_id)


def spans(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """The ranges first..last that hold exactly these numbers, each once, as ids for the wire. Sorts the list."""
    if not numbers:
        return
    numbers.sort()
    if numbers[-1] - numbers[0] == len(numbers) - 1 and numbers[0] // ROUND == numbers[-1] // ROUND:
        yield numbers[0] & SERIAL_MASK, numbers[-1] & SERIAL_MASK  # without gaps: most of them
        return
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1 or not number % ROUND:
            yield first & SERIAL_MASK, last & SERIAL_MASK
            first = number
        last = number
    yield first & SERIAL_MASK, last & SERIAL_MASK
