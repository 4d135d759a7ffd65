"""Errors of rules: an invalid text, or a message that it cannot be evaluated on."""

from __future__ import annotations

from twinbus.errors import ArgumentError, TwinbusError

_EXCERPT = 24


class SqlError(ArgumentError):
    """An invalid filter or action; nothing was created. Says what is wrong, and where."""

    def __init__(self, problem: str, text: str = "", at: int | None = None) -> None:
        self.line: int | None = None
        self.column: int | None = None
        if at is not None:
            self.line, self.column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            rest = " ".join(text[at : at + _EXCERPT].split())
            place = f"«{rest}»" if rest else "the end"
            problem = f"{problem}, at line {self.line}, column {self.column}: {place}"
        super().__init__(problem)


class FilterError(TwinbusError):
    """A valid rule cannot be evaluated on this message: its subscription may dead-letter it."""
