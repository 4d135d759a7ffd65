"""The exit codes of all commands; no other file has these numbers."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    WRONG_ARGUMENTS = 2
    NOT_ALL = 3
    LOST = 4
    FAILING = 10
    FAILED_OVER = 11
    WAITING = 12
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "done, or stopped on request",
    ExitCode.FAILED: "it could not be done; one line on stderr says why",
    ExitCode.WRONG_ARGUMENTS: "wrong arguments; one line on stderr says what would be right",
    ExitCode.NOT_ALL: "done, but not all of it; the help of the command says what that means there",
    ExitCode.LOST: "done, and messages are lost",
    ExitCode.FAILING: "a pair is failing (`twinbus status`)",
    ExitCode.FAILED_OVER: "a pair has failed over (`twinbus status`)",
    ExitCode.WAITING: "messages wait in the backlog of a pair, and nothing is known to fail (`twinbus status`)",
    ExitCode.INTERRUPTED: "interrupted: by Ctrl-C, SIGTERM, or a terminal that was closed",
}
"""What each of them says, in general."""

VERDICTS = {
    ExitCode.FAILING: "failing: an entity, a namespace or the backlog does not work",
    ExitCode.FAILED_OVER: "failed over: sending fails, and messages lie in the backlog",
    ExitCode.WAITING: "waiting: messages are not home yet, and nothing is known to fail",
}
"""What a pair can be, beside healthy (0) and unknown (3)."""

EVERYWHERE = (ExitCode.DONE, ExitCode.FAILED, ExitCode.WRONG_ARGUMENTS, ExitCode.INTERRUPTED)
"""What any command may end with; the others are those of some."""


def exit_codes(
    *, done: str | None = None, not_all: str | None = None, lost: str | None = None, verdicts: bool = False
) -> str:
    """The end of a command's help; the arguments say what codes mean there. `verdicts`: those of a pair, too."""
    special = {ExitCode.DONE: done, ExitCode.NOT_ALL: not_all, ExitCode.LOST: lost}
    special |= {code: text if verdicts else None for code, text in VERDICTS.items()}
    meanings = {code: MEANINGS[code] for code in EVERYWHERE} | {code: text for code, text in special.items() if text}
    lines = [f"  {int(code):<4} {meanings[code]}" for code in sorted(meanings)]
    return "\n".join(["\b", "Exit codes:", *lines])
