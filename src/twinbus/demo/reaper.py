"""Ends the processes of a demo that was killed and could not do it itself.

It reads process groups from its standard input, a number a line, and `done` at the end. If its input ends without that,
the demo is gone: it kills the groups and removes the folder it was given. It imports nothing of twinbus, so that it
runs before the first of those processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

DONE = "done"
WAIT_S, PAUSE_S = 10.0, 0.02
"""Until nothing is left that could still write a file."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever ends the demo so leaves it the time to clean up
    groups: list[int] = []
    for line in sys.stdin:
        if line.strip() == DONE:
            return
        groups.append(int(line))
    deadline = time.monotonic() + WAIT_S
    while groups and time.monotonic() < deadline:
        groups = [group for group in groups if _kill(group)]
        time.sleep(PAUSE_S)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


def _kill(group: int) -> bool:
    """Whether something of it was still there."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    main()
