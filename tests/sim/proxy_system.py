"""What shells ask their system for, in the hands of a simulation: clocks, dice, and the order of sets of objects.

Most of our code takes time and chance as arguments. Shells do not: while a simulation runs, they get its own.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import ModuleType
from typing import Any

from sim.clock import START_MS
from sim.proxy_loop import SimulatedLoop
from twinbus.amqp.peer_memory import Account
from twinbus.broker.links.dispatcher import LinkDispatcher
from twinbus.broker.net.amqp_connection import AmqpConnection
from twinbus.client.core import answers
from twinbus.client.flows import schedule_tokens
from twinbus.client.native.send_window import SendWindow
from twinbus.transport.connection import NamespaceConnection

OURS = "twinbus."
KEPT_IN_SETS = (LinkDispatcher, AmqpConnection, NamespaceConnection, SendWindow, Account)


class SimulatedTime(ModuleType):
    """As the module `time`, as far as shells need it."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__("time")
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.now

    def time(self) -> float:
        return START_MS / 1000 + self._loop.now

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the simulation has no time.{name}")


def _number(kind: Any) -> None:
    """Objects of this kind have numbers, so that it is the seed that decides in which order a set of them is."""
    numbers = count()

    def number(each: Any) -> int:
        values = vars(each)
        if "simulated_number" not in values:
            values["simulated_number"] = next(numbers)
        return int(values["simulated_number"])

    kind.__hash__ = number


@contextmanager
def simulated_system(loop: SimulatedLoop, seed: int) -> Iterator[None]:
    """Whoever of ours asks for the time, rolls dice, or goes through a set, gets what the simulation has."""
    simulated = SimulatedTime(loop)
    stand_ins: dict[int, Any] = {
        id(time): simulated,
        id(time.monotonic): simulated.monotonic,
        id(time.time): simulated.time,
    }
    places = [
        (module, name, value)
        for path, module in list(sys.modules.items())
        if path.startswith(OURS)
        for name, value in list(vars(module).items())
        if id(value) in stand_ins
    ]
    dice, answers._dice = answers._dice, random.Random(f"{seed} dice")
    tokens, schedule_tokens._numbers = schedule_tokens._numbers, count(1)
    others_dice = random.getstate()
    random.seed(f"{seed} other dice")
    for kind in KEPT_IN_SETS:
        _number(kind)
    for module, name, value in places:
        setattr(module, name, stand_ins[id(value)])
    try:
        yield
    finally:
        answers._dice, schedule_tokens._numbers = dice, tokens
        random.setstate(others_dice)
        for kind in KEPT_IN_SETS:
            del kind.__hash__
        for module, name, value in places:
            setattr(module, name, value)
