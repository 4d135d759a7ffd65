"""Which port a namespace gets that asks for any: one that is still free when it comes back after a kill."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest
from free_ports import free_port

from twinbus.broker.net import ports
from twinbus.broker.net.ports import FIRST, bind_sockets, lasting_port, ports_to_try

ANY = (socket.AF_INET, ("127.0.0.1", 0))


@pytest.fixture
def system_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the system says of the ports that it gives away."""
    said = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "SYSTEM_RANGE", said)
    return said


@pytest.mark.parametrize("said", ["32768\t60999\n", "1024 30000", "12000 65535", "10240 11000"])
def test_a_port_is_none_of_those_that_the_system_gives_away(system_range: Path, said: str) -> None:
    system_range.write_text(said)
    low, high = map(int, said.split())
    chosen = [lasting_port() for _ in range(100)]
    assert all(FIRST <= port <= 65_535 and not low <= port <= high for port in chosen)
    assert len(set(chosen)) > 50


@pytest.mark.parametrize("said", ["1024 65535", "10500 65535"])
def test_where_the_system_gives_nearly_all_away_it_chooses(system_range: Path, said: str) -> None:
    system_range.write_text(said)
    assert lasting_port() == 0


@pytest.mark.parametrize("said", [None, "", "no numbers"])
def test_where_nobody_says_which_they_are_it_is_the_usual_ones(system_range: Path, said: str | None) -> None:
    if said is not None:
        system_range.write_text(said)
    assert all(FIRST <= lasting_port() < 32_768 for _ in range(100))


def test_a_port_that_is_asked_for_is_the_only_one() -> None:
    assert list(ports_to_try(5672)) == [5672]


def test_who_asks_for_any_port_gets_one_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "lasting_port", iter([11_000, 12_000]).__next__)
    monkeypatch.setattr(ports, "PORT_TRIES", 2)
    assert list(ports_to_try(0)) == [11_000, 12_000, 0, 0]


def test_a_port_that_is_taken_is_passed_over_and_at_last_the_system_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(ports, "lasting_port", lambda: taken.getsockname()[1])
        (found,) = bind_sockets([ANY])
        with found:
            assert found.getsockname()[1] not in (0, taken.getsockname()[1])
        monkeypatch.setattr(ports, "lasting_port", iter([taken.getsockname()[1], 0]).__next__)
        (found,) = bind_sockets([ANY])
        found.close()
        with pytest.raises(OSError, match="in use") as refused:
            bind_sockets([(socket.AF_INET, taken.getsockname())])
    assert refused.value.errno == errno.EADDRINUSE


def test_a_port_that_nobody_asked_for_is_picked_once_also_before_anybody_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (first,) = bind_sockets([ANY])
    with first:
        port = first.getsockname()[1]
        monkeypatch.setattr(ports, "lasting_port", lambda: port)
        (second,) = bind_sockets([ANY])
        with second:
            assert second.getsockname()[1] != port


def test_a_reserved_port_is_free_for_the_server_that_is_given_it_and_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    monkeypatch.setattr(ports, "lasting_port", lambda: port)
    (other,) = bind_sockets([ANY])
    with other:
        assert other.getsockname()[1] != port
    for _ in range(2):  # it may come again
        (bound,) = bind_sockets([(socket.AF_INET, ("127.0.0.1", port))])
        with bound:
            bound.listen(1)
