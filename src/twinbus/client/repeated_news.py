"""Fewer log lines for what happens again and again while a primary is down.

The first one is logged in full. Those that say the same are counted, and a short line with their number follows at
growing intervals. Callbacks and the ledger get every one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from twinbus.client.news import News, NewsName

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(hours=1)
REPEATED = frozenset({NewsName.PING_FAILED})
ENDS = frozenset({NewsName.FAILED_OVER, NewsName.RECOVERED})
"""What comes after these is news again."""


@dataclass(slots=True)
class _Series:
    began_at: datetime
    due_at: datetime
    pause: timedelta = FIRST_PAUSE
    times: int = 1


class RepeatedNews:
    """What of the news of one client goes to its log. The time is that of the news."""

    def __init__(self) -> None:
        self._series: dict[str, dict[str, _Series]] = {}

    def to_log(self, news: News) -> News | None:
        """These news, or a short form that stands for several, or None: nothing now."""
        entity = news.entity or ""
        if news.name in ENDS:
            self._series.pop(entity, None)
        if news.name not in REPEATED:
            return news
        kind = news.text.partition(":")[0]
        known = self._series.setdefault(entity, {})
        series = known.get(kind)
        if series is None:
            known[kind] = _Series(news.at, news.at + FIRST_PAUSE)
            return news
        series.times += 1
        if news.at < series.due_at:
            return None
        series.pause = min(2 * series.pause, LONGEST_PAUSE)
        series.due_at = news.at + series.pause
        details = {"times": series.times, "since_s": round((news.at - series.began_at).total_seconds())}
        return replace(news, text=kind, details=details)
