"""How long a send to a backlog queue may take, with a clock that is turned by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twinbus.client.core import link_rules
from twinbus.client.core.link_rules import NoFreeLink
from twinbus.client.sync import backlog_pool
from twinbus.client.sync.backlog_pool import BacklogPool

TIMEOUT_S = 10.0


class SlowLinks:
    """A clock that waiting for a turn, opening a link and sending each move on."""

    def __init__(self, wait_s: float, open_s: float) -> None:
        self.now = 100.0
        self._wait_s, self._open_s = wait_s, open_s
        self.max_batch_bytes = 1024
        self.is_alive = True

    def wait_for_turn(self, _room: object, _seconds: float) -> bool:
        self.now += self._wait_s
        return True

    def open(self, *_: object, deadline_s: float) -> SlowLinks:
        assert self._open_s <= deadline_s
        self.now += self._open_s
        return self

    def send(self, _batch: object, deadline_s: float) -> None:
        self.now += deadline_s

    def discard(self) -> None: ...


def send(
    monkeypatch: pytest.MonkeyPatch, *, wait_s: float, open_s: float, is_patient: bool = True
) -> tuple[SlowLinks, float]:
    """What was used, and how long a send took that got its answer at the last moment."""
    links = SlowLinks(wait_s, open_s)
    monkeypatch.setattr(backlog_pool, "monotonic", lambda: links.now)
    monkeypatch.setattr(link_rules, "monotonic", lambda: links.now)
    monkeypatch.setattr(backlog_pool, "acquire_within", links.wait_for_turn)
    client: Any = SimpleNamespace()
    opener: Any = links
    pool = BacklogPool(client, str, opener)
    began = links.now
    try:
        pool.send(0, [b"\x00\x53\x75\xa0\x00"], TIMEOUT_S, is_patient=is_patient)
    finally:
        took_s = links.now - began
        assert took_s <= 2 * TIMEOUT_S
    return links, took_s


@pytest.mark.parametrize(("wait_s", "open_s"), [(0.0, 10.0), (5.0, 5.0), (9.0, 5.0), (5.0, 9.5), (0.0, 0.0)])
def test_a_patient_send_takes_twice_its_time_at_most(
    monkeypatch: pytest.MonkeyPatch, wait_s: float, open_s: float
) -> None:
    send(monkeypatch, wait_s=wait_s, open_s=open_s)


def test_a_patient_send_without_fair_time_for_an_answer_waits_for_another_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoFreeLink):
        send(monkeypatch, wait_s=9.0, open_s=9.0)


def test_a_patient_send_gets_all_its_time_once_it_has_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    assert send(monkeypatch, wait_s=0.0, open_s=8.0)[1] == pytest.approx(8.0 + TIMEOUT_S)


def test_a_hurried_send_takes_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert send(monkeypatch, wait_s=2.0, open_s=2.0, is_patient=False)[1] == pytest.approx(TIMEOUT_S)
