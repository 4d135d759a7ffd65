"""A mutant: one small breakage of one clause, as a text in the source and what takes its place."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path("src") / "twinbus"


@dataclass(frozen=True, slots=True)
class Mutant:
    clause: str
    """The clause that does not hold any more, as in docs/conformance.md."""
    file: str
    """Below src/twinbus."""
    text: str
    """What is replaced; found exactly once in the file."""
    replacement: str
    breaks: str
    """One sentence: what goes wrong."""
    by: str
    """The test that is expected to notice, one of those that docs/conformance.md names for the clause: the name of its
    function, with its file in front if there are two. The clause's other tests run only if it passes."""

    def problem(self, root: Path) -> str | None:
        """Why it cannot be tried on the tree at `root`; None: it can."""
        path = root / SOURCE / self.file
        if not path.is_file():
            return f"{SOURCE / self.file} does not exist"
        source = path.read_text(encoding="utf-8")
        times = source.count(self.text)
        if times != 1:
            return f"its text must be exactly once in {SOURCE / self.file}, found {times} times: {self.text!r}"
        try:
            ast.parse(self.applied_to(source))
        except SyntaxError as error:
            return f"with its replacement {SOURCE / self.file} is not Python any more: {error}"
        return None

    def applied_to(self, source: str) -> str:
        return source.replace(self.text, self.replacement)
