"""Texts that come from anywhere, made harmless: a terminal obeys what it is shown, and names come from strangers."""

from __future__ import annotations

MARK = "\N{MIDDLE DOT}"
"""Stands for a character that cannot be shown."""


def harmless(text: str, kept: str = "") -> str:
    """The text with a mark for everything that cannot be printed; characters in `kept` stay."""
    return "".join(letter if letter.isprintable() or letter in kept else MARK for letter in text)


def on_one_line(text: str) -> str:
    """The same on one line, with one space wherever there was any."""
    return harmless(" ".join(text.split()))
