"""The rows about pairing: what it costs while all is well, and what an outage costs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from os import sched_getaffinity, sched_setaffinity
from pathlib import Path

from bench import ledger_cost, outage_gap, pairing_cost
from bench.namespaces import served_pair
from bench.processes import Cores, bind_to
from bench.results import Row


def measure_pairing(folder: Path, cores: Cores, *, turns: int, outages: int) -> list[Row]:
    """Namespaces of the pair on one core, the clients, which are in this process, on the other."""
    logging.getLogger("twinbus.pairing").setLevel(logging.CRITICAL)  # outages are meant here
    with _bound_to(cores.client):
        with served_pair(folder / "cost", cores.broker) as pair:
            cost = pairing_cost.measure(*pair, turns)
            cost += ledger_cost.measure(*pair, folder / "ledger", turns)
        with served_pair(folder / "outages", cores.broker, outage_gap.QUEUES) as pair:
            return cost + outage_gap.measure(*pair, outages)


@contextmanager
def _bound_to(core: int | None) -> Iterator[None]:
    before = sched_getaffinity(0)
    bind_to(core)
    try:
        yield
    finally:
        sched_setaffinity(0, before)
