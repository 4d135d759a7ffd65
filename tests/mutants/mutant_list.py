"""All mutants, by section of the specification, each with a short name: P9.2 is the second one of clause P9."""

from __future__ import annotations

from collections import Counter

from mutant import Mutant
from mutants_of_board import BOARD
from mutants_of_failover import FAILOVER
from mutants_of_pairing import PAIRING
from mutants_of_pipeline import PIPELINE
from mutants_of_proxy import PROXY
from mutants_of_service import SERVICE
from mutants_of_way_home import WAY_HOME


def named_mutants() -> dict[str, Mutant]:
    numbers: Counter[str] = Counter()
    named: dict[str, Mutant] = {}
    for mutant in (*SERVICE, *PAIRING, *FAILOVER, *WAY_HOME, *PIPELINE, *PROXY, *BOARD):
        numbers[mutant.clause] += 1
        named[f"{mutant.clause}.{numbers[mutant.clause]}"] = mutant
    return named
