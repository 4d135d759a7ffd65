"""How many simulations a run of the tests makes: some usually, all with `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain

_IS_THOROUGH = os.environ.get("TWINBUS_SEEDS") == "all"


def seed_count(usually: int, thoroughly: int) -> int:
    return thoroughly if _IS_THOROUGH else usually


def beginning_with(known: int, most: int) -> Iterable[int]:
    """The seeds below `most`, first the one that is known to find what is looked for.

    Code that draws in another order makes it useless, and nothing worse: the search takes longer then.
    """
    return chain(range(known, most), range(known))
