"""Findings of other hosts that may be acted on: signed, fresh, not posted again, and of a quorum of listed hosts.

What an unsigned report says is for people. Here a report counts if all of this is so:

* It is signed with the key of its host, and that host is listed and is not ours.
* Its host has said in it how late it was at the secondary, and the secondary has stored it soon after: so a copy of it
  that somebody posts later does not count.
* It is younger than `FRESH_S` at most, by the secondary's clock, of which we know two bounds. A mark that we have seen
  was made before: so late it is there at least. And the mark of our own report, which was made after that had left,
  says how late it is there at most.
* Its number is higher than all that we have seen of its instance.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from twinbus.board.board_peek import BoardLook, PostedReport
from twinbus.board.report import ProcessPhase, ProcessReport, ReportedState, decode_report
from twinbus.errors import DecodeError

FRESH_S = 50.0
"""A process that has failed over reports every 20 s: two reports, and a little more."""
REPLAY_S = 30.0
"""Between the time that a host says in a report and the one at which the secondary stored it."""
INSTANCES_MAX = 1_000
"""Of all hosts together. Each has an even share, so that a host whose key is lost pushes out only its own."""
OWN_MAX = 8
"""Of our own reports, those that may still be seen."""
LOOK_EVERY_S = 3.0
"""While an entity is suspect."""
TIME_GOOD_S = 1_800.0
"""After so long the bounds of the secondary's clock are found anew, for clocks drift."""


def sign(key: bytes, path: str, body: bytes) -> str:
    """The signature of a report on this board."""
    return hmac.new(key, path.casefold().encode() + b"\n" + body, "sha256").hexdigest()


def is_signed(key: bytes, path: str, post: PostedReport) -> bool:
    return hmac.compare_digest(sign(key, path, post.body).encode(), post.signature.encode("utf-8", "replace"))


class _Signed(NamedTuple):
    """The latest report of an instance that counts."""

    report: ProcessReport
    enqueued_s: float


class SharedFindings:
    """For one event loop or thread. `at` is monotonic time here."""

    def __init__(self, path: str, keys: Mapping[str, bytes], host: str, quorum: int) -> None:
        """`keys`: by host; `host`: our own, which does not count; `quorum`: how many others have to agree."""
        self._path, self._keys, self._host, self._quorum = path, keys, host, quorum
        self._ahead_min_s: float | None = None
        self._ahead_max_s: float | None = None
        """How far the secondary's clock is ahead of ours, at least and at most."""
        self._left: dict[str, float] = {}
        """By signature, when our own reports left that were not seen yet: the latest ones."""
        self._latest: dict[str, dict[str, _Signed]] = {each: {} for each in keys if each != host}
        """By host and instance."""
        self._share_max = max(1, INSTANCES_MAX // max(1, len(self._latest)))

    @property
    def knows_time(self) -> bool:
        """Whether both bounds are known; without them nothing counts."""
        return self._ahead_min_s is not None and self._ahead_max_s is not None

    def there_ms(self, at: float) -> int | None:
        """How late it is at the secondary at least, for our own report; None: nobody knows yet."""
        return None if self._ahead_min_s is None else int((at + self._ahead_min_s) * 1000)

    def sign(self, body: bytes, at: float) -> str:
        """The signature of our own report, which leaves at that time or later."""
        signature = sign(self._keys[self._host], self._path, body)
        self._left[signature] = at
        while len(self._left) > OWN_MAX:
            del self._left[next(iter(self._left))]
        return signature

    def add(self, found: BoardLook, at: float) -> bool:
        """What a look has found that ended at that time; whether our own report was in it."""
        has_own = self._see_own(found.posts)
        marks = [post.enqueued_ms / 1000 for post in found.posts if post.enqueued_ms is not None]
        if marks:
            low, before, most = max(marks) - at, self._ahead_min_s, self._ahead_max_s
            is_wrong = before is not None and most is not None and before > most  # a clock was set, or has drifted
            self._ahead_min_s = low if before is None or is_wrong else max(before, low)
        for post in found.posts:
            self._add(post)
        for latest in self._latest.values():
            while len(latest) > self._share_max:
                del latest[next(iter(latest))]
        return has_own

    def _see_own(self, posts: Sequence[PostedReport]) -> bool:
        """What others have stored proves nothing here: a service may show late what it has accepted."""
        has_own = False
        for post in posts:
            left_at = None if post.enqueued_ms is None else self._left.pop(post.signature, None)
            if left_at is not None and post.enqueued_ms is not None:
                self._ahead_max_s, has_own = post.enqueued_ms / 1000 - left_at, True
        return has_own

    def confirmed(self, at: float) -> dict[str, tuple[str, ...]]:
        """Entities, in lower case, that a quorum of other hosts has failed over, with these hosts."""
        if not self.knows_time:
            return {}
        hosts: dict[str, set[str]] = {}
        for host, latest in self._latest.items():
            for signed in latest.values():
                if signed.report.phase is ProcessPhase.PAIRED and self._age_max_s(signed, at) <= FRESH_S:
                    for each in signed.report.entities:
                        if each.state is ReportedState.FAILED_OVER:
                            hosts.setdefault(each.entity.lower(), set()).add(host)
        return {entity: tuple(sorted(who)) for entity, who in hosts.items() if len(who) >= self._quorum}

    def _age_max_s(self, signed: _Signed, at: float) -> float:
        assert self._ahead_max_s is not None
        return at + self._ahead_max_s - signed.enqueued_s

    def _add(self, post: PostedReport) -> None:
        if not post.signature or post.enqueued_ms is None:
            return
        try:
            report = decode_report(post.body)
        except DecodeError:
            return
        latest = self._latest.get(report.host)
        if latest is None or report.there_ms is None or not is_signed(self._keys[report.host], self._path, post):
            return
        if not -REPLAY_S * 1000 <= post.enqueued_ms - report.there_ms <= REPLAY_S * 1000:
            return
        before = latest.pop(report.instance, None)
        if before is None or report.number > before.report.number:
            before = _Signed(report, post.enqueued_ms / 1000)
        latest[report.instance] = before
