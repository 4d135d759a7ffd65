"""A syphon in a process of its own that says how long it took, and how much memory: `python -m bench.mover COUNT`."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time

from twinbus import Namespace
from twinbus.syphon import Syphon, SyphonOptions

LOOK_S = 0.01


async def move(count: int, queues: int) -> float:
    """The seconds until so many messages are stored at home and gone from the backlog."""
    primary, secondary = (
        Namespace.from_connection_string(os.environ[f"TWINBUS_{side}"]) for side in ("PRIMARY", "SECONDARY")
    )
    name = primary.name or "contoso"
    began = time.perf_counter()
    async with Syphon(primary.dial(), secondary.dial(), name, queues, SyphonOptions()) as syphon:
        while syphon.pump.counts.moved < count:
            await asyncio.sleep(LOOK_S)
        return time.perf_counter() - began


if __name__ == "__main__":
    seconds = asyncio.run(move(int(sys.argv[1]), int(sys.argv[2])))
    most_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "memory_mb": most_kb * 1024 / 1e6}))
