"""What the chaos programs share: the account of messages that were promised, and how such a program is run."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.cli.output import table


@dataclass(slots=True)
class Account:
    """What was promised, and what became of it. Messages are known by entity and id."""

    kills: Counter[str] = field(default_factory=Counter)
    """By victim."""
    promised: set[tuple[str, str]] = field(default_factory=set)
    """Every message that was acknowledged."""
    home: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each arrived."""
    damaged: list[str] = field(default_factory=list)
    left: int = 0
    """Still on the way, or put aside."""

    @property
    def lost(self) -> list[tuple[str, str]]:
        return sorted(self.promised - set(self.home))

    @property
    def unexpected(self) -> list[tuple[str, str]]:
        return sorted(set(self.home) - self.promised)

    @property
    def repeats(self) -> int:
        return self.home.total() - len(self.home)

    @property
    def is_whole(self) -> bool:
        return not self.lost and not self.unexpected and not self.damaged and not self.left

    @property
    def is_fine(self) -> bool:
        """Whether everything is as promised."""
        raise NotImplementedError

    def columns(self) -> list[tuple[str, object]]:
        """The heads of the table, and the values of this account."""
        raise NotImplementedError

    def note_arrival(self, entity: str, message_id: str, body: bytes, times: int = 1) -> None:
        """The body of each message is its id."""
        self.home[entity, message_id] += times
        if body != message_id.encode():
            self.damaged.append(message_id)


def drawn(accounts: Sequence[Account]) -> str:
    heads = [head for head, _ in accounts[0].columns()]
    return table([heads, *[[value for _, value in account.columns()] for account in accounts]])


def show_progress(done: int, of: int) -> None:
    sys.stderr.write(f"\rchaos: {done} of {of} kills " if sys.stderr.isatty() else "")


def arguments(description: str, messages: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--runs", type=int, default=50, help="how many kills")
    parser.add_argument("--messages", type=int, default=messages, help="how many new messages for each kill")
    parser.add_argument("--seed", type=int, default=None, help="the same seed, the same victims and pauses")
    return parser


def count_and_exit(seed: int | None, variants: Sequence[Callable[[int, Path], Account]]) -> None:
    """Run each variant, in a folder of its own, and print what it came to; exit code 1 if one is not as promised."""
    seed = seed if seed is not None else random.randrange(1_000_000)
    print(f"seed {seed}", flush=True)
    accounts = []
    for run in variants:
        with tempfile.TemporaryDirectory(prefix="twinbus-chaos-") as folder:
            accounts.append(run(seed, Path(folder)))
    print(drawn(accounts))
    for account in accounts:
        if not account.is_fine:
            some = f"lost {account.lost[:10]}, unexpected {account.unexpected[:10]}"
            sys.exit(f"chaos: not as promised, see the table; {some}")
