"""Errors of rules: an invalid text, or a message that it cannot be evaluated on."""

from __future__ import annotations

from twinbus.errors import ArgumentError, TwinbusError

_EXCERPT = 24


class SqlError(ArgumentError):
    """An invalid filter or action; nothing was created. Says what is wrong, and where."""

    def __init__(self, problem: str, text: str = "", at: int | None = None) -> None:
        self.problem = problem
        self.line: int | None = None
        self.column: int | None = None
        if at is not None:
            self.line, self.column = _position(text, at)
        super().__init__(problem if at is None else f"{problem}, at {_place(text, at)}")


class FilterError(TwinbusError):
    """A valid rule cannot be evaluated on this message: its subscription may dead-letter it."""


def _position(text: str, at: int) -> tuple[int, int]:
    line_start = text.rfind("\n", 0, at) + 1
    return text.count("\n", 0, at) + 1, at - line_start + 1


def _place(text: str, at: int) -> str:
    line, column = _position(text, at)
    rest = " ".join(text[at : at + _EXCERPT].split())
    return f"line {line}, column {column}: " + (f"«{rest}»" if rest else "the end")
