"""How a command ended, for whoever called it. The only place where these numbers are written."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    DONE = 0
    FAILED = 1
    WRONG_ARGUMENTS = 2
    NOT_ALL = 3
    LOST = 4
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "done, or stopped on request",
    ExitCode.FAILED: "it could not be done; one line on stderr says why",
    ExitCode.WRONG_ARGUMENTS: "wrong arguments; one line on stderr says what would be right",
    ExitCode.NOT_ALL: "done, but not all of it; the help of the command says what that means there",
    ExitCode.LOST: "done, and messages are lost",
    ExitCode.INTERRUPTED: "interrupted: by Ctrl-C, SIGTERM, or a terminal that was closed",
}
"""What each of them says, in general."""

EVERYWHERE = (ExitCode.DONE, ExitCode.FAILED, ExitCode.WRONG_ARGUMENTS, ExitCode.INTERRUPTED)
"""What any command may end with; the others are those of some."""


def exit_codes(*, not_all: str | None = None, lost: str | None = None) -> str:
    """The end of a command's help; the arguments say what the rarer codes mean there."""
    special = {ExitCode.NOT_ALL: not_all, ExitCode.LOST: lost}
    meanings = {code: MEANINGS[code] for code in EVERYWHERE} | {code: text for code, text in special.items() if text}
    lines = [f"  {int(code):<4} {meanings[code]}" for code in sorted(meanings)]
    return "\n".join(["\b", "Exit codes:", *lines])
