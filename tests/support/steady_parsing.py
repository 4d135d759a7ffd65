"""`ast.parse` in a process where it may be called in the middle of itself.

CPython 3.11 counts how deep a syntax tree is in one place for the whole process. If something is parsed while something
else is, on another thread or because the garbage collector ends a task whose traceback is then formatted, the outer
call raises SystemError. pytest, hypothesis and `inspect` parse a lot.
"""

from __future__ import annotations

import ast
from typing import Any

TRIES = 10
_parse = ast.parse


def parse_again_if_disturbed() -> None:
    """From now on, in the whole process."""
    ast.parse = _patient


def _patient(*arguments: Any, **options: Any) -> Any:
    for _ in range(TRIES - 1):
        try:
            return _parse(*arguments, **options)
        except SystemError:
            continue
    return _parse(*arguments, **options)
