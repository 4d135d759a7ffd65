"""The entry point: handles Ctrl-C while the commands are imported, which takes some time."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 130
"""As in `exit_codes`, which is not imported yet."""


def main() -> NoReturn:
    """Run `twinbus` with the arguments of this process, and exit. SIGTERM interrupts as Ctrl-C does.

    So does a terminal that is closed, whatever a command does about SIGTERM; not under nohup.
    """
    # A process started in the background ignores SIGINT, and goes on ignoring it.
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        numbers.append(signal.SIGINT)
    for number in numbers:
        signal.signal(number, _leave)
    from twinbus.cli.main import main as run_and_exit
    from twinbus.cli.signals import interrupt, was_interrupted

    try:
        for number in numbers:
            signal.signal(number, interrupt)
        run_and_exit()
    except KeyboardInterrupt:  # before the command has begun, or after its end
        _leave()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
        _end_no_other_way(numbers, code)
        if was_interrupted():
            _end_by_ourselves(code)
        raise
    raise AssertionError("unreachable: whoever runs it exits")


def _end_no_other_way(numbers: Iterable[int], code: int) -> None:
    """The command has done its work and said so: a signal that comes now makes it end sooner, not differently."""
    with suppress(OSError):
        sys.stdout.flush()
    for number in numbers:
        signal.signal(number, lambda *_: os._exit(code))


def _end_by_ourselves(code: int) -> NoReturn:
    """As the interpreter does, but with this code: it takes some interrupts that were caught for uncaught ones.

    Those that came while code ran that was made of a string, as when a dataclass is defined.
    """
    atexit._run_exitfuncs()
    os._exit(code)


def _leave(*_: object) -> None:
    """Nothing has been done yet, so nothing is to be undone."""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, b"twinbus: interrupted\n")
    os._exit(INTERRUPTED)
