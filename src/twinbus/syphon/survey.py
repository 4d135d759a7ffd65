"""A dry run: what a syphon would do with a backlog, found by peeking."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from twinbus.errors import DecodeError, EnvelopeError
from twinbus.pairing.backlog_queues import backlog_path
from twinbus.pairing.envelope import read_aliases
from twinbus.pairing.failure import Failure
from twinbus.syphon.letters import enqueued_ms, expiry_ms
from twinbus.syphon.line import Line
from twinbus.syphon.linked import LineFailed
from twinbus.syphon.look import Wants, is_waiting, pages
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pace import Pace
from twinbus.syphon.placement import problem_of_letter
from twinbus.syphon.queue_search import chosen, doubts
from twinbus.syphon.reasons import path_problem

if TYPE_CHECKING:
    from twinbus.dial import Dial


SESSIONS_MAX = 10_000


@dataclass(slots=True)
class Share:
    """Some of the messages of a backlog."""

    messages: int = 0
    size: int = 0
    """In bytes, as they lie in the backlog."""
    oldest_ms: int | None = None
    """When the first of them came into the backlog."""
    newest_ms: int | None = None

    def add(self, size: int, enqueued_at_ms: int | None) -> None:
        self.messages += 1
        self.size += size
        if enqueued_at_ms is not None:
            self.oldest_ms = enqueued_at_ms if self.oldest_ms is None else min(self.oldest_ms, enqueued_at_ms)
            self.newest_ms = enqueued_at_ms if self.newest_ms is None else max(self.newest_ms, enqueued_at_ms)


@dataclass(slots=True)
class Survey:
    """What would move where."""

    destinations: dict[str, Share] = field(default_factory=dict)
    malformed: Share = field(default_factory=Share)
    """Would be dead-lettered: it did not come from a paired client."""
    expired: Share = field(default_factory=Share)
    """Would be dead-lettered: its time to live has ended."""
    unwanted: Share = field(default_factory=Share)
    """Stays where it is, by these options."""
    kept: Share = field(default_factory=Share)
    """Stays where it is: its queue cannot be emptied, and `doubts` says why."""
    set_aside: Share = field(default_factory=Share)
    """Scheduled or deferred in the backlog itself, by somebody else: no receiver gets it."""
    sessions: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of each entity: how many messages of each session would move, those without one under an empty name. Not more
    than 10,000 sessions are told apart; the messages of all others are not in here."""
    session_count: int = 0
    """How many are told apart."""
    queues: tuple[int, ...] = ()
    """The backlog queues that were looked through, by index."""
    doubts: list[str] = field(default_factory=list)
    """Why nobody can say that this is all, and that all of it would come home; a line each."""
    order_problem: str | None = None
    """With `order_over`: why order cannot be promised."""

    @property
    def doubt(self) -> str | None:
        """The same in one line; None: somebody can."""
        return "; ".join(self.doubts) or None

    def add(self, letter: bytes, options: SyphonOptions, wants: Wants, now_ms: int) -> None:
        since_ms = enqueued_ms(letter)
        self._share(letter, since_ms, options, wants, now_ms).add(len(letter), since_ms)

    def check_order(self, letter: bytes, queue: int, path: str, options: SyphonOptions, wants: Wants) -> None:
        """Note why the order of a letter is not known, if it is the first of that kind."""
        if options.order_over is not None and self.order_problem is None:
            problem = problem_of_letter(letter, queue, options.order_over, wants)
            self.order_problem = None if problem is None else f"{path}: {problem}"

    def largest_sessions(self, most: int) -> list[tuple[str, str, int]]:
        """Entity, session and messages, of those with the most."""
        every = [(path, name, count) for path, names in self.sessions.items() for name, count in names.items()]
        return nlargest(most, every, key=lambda each: each[2])

    def _share(self, letter: bytes, since_ms: int | None, options: SyphonOptions, wants: Wants, now_ms: int) -> Share:
        try:
            if not is_waiting(letter):
                return self.set_aside
            aliases = read_aliases(letter)
        except (EnvelopeError, DecodeError):
            return self.malformed
        if path_problem(aliases.path) is not None:
            return self.malformed
        if not wants(aliases.path, since_ms):
            return self.unwanted
        ends_ms = expiry_ms(aliases, now_ms if since_ms is None else since_ms)
        if options.ttl == "remaining" and ends_ms is not None and ends_ms <= now_ms:
            return self.expired
        self._count_session(aliases.path, aliases.session_id or "")
        return self.destinations.setdefault(aliases.path, Share())

    def _count_session(self, path: str, session_id: str) -> None:
        names = self.sessions.setdefault(path, {})
        if session_id not in names:
            if self.session_count >= SESSIONS_MAX:
                return
            self.session_count += 1
        names[session_id] = names.get(session_id, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"doubt": self.doubt}


async def survey(
    secondary: Dial,
    primary_name: str,
    queue_count: int,
    options: SyphonOptions | None = None,
    *,
    queues: Sequence[int] | None = None,
    shut: Collection[int] = (),
) -> Survey:
    """Look through all backlog queues and take nothing; `doubts` names those that did not let us look.

    What lies in those that are `shut` would not move.
    Raises `LineFailed` if the secondary does not answer.
    """
    options = options or SyphonOptions()
    now_ms = int(time.time() * 1000)
    wants = Pace(options, now_ms).wants
    found, unread = Survey(queues=tuple(chosen(queue_count, queues))), dict[int, Failure]()
    line = Line(secondary, attempt_s=options.attempt_s, clock=lambda: int(time.monotonic() * 1000))
    await line.open()
    try:
        for index in found.queues:
            path = backlog_path(primary_name, index)
            try:
                async for letters in pages(line, path):
                    for letter in letters:
                        if index in shut:
                            found.kept.add(len(letter), enqueued_ms(letter))
                            continue
                        found.add(letter, options, wants, now_ms)
                        found.check_order(letter, index, path, options, wants)
            except LineFailed as error:
                if not line.is_open:
                    raise
                unread[index] = error.failure
    finally:
        await line.close()
    found.doubts += doubts(unread)
    return found
