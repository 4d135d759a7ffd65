"""Syphons of this machine are found, seen and steered; what makes no sense changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twinbus.control import control_client
from twinbus.control.local_register import Registration
from twinbus.errors import OptionsError, TwinbusError
from twinbus.syphon import control
from twinbus.syphon.control import KEEP, PaceChange, RunningSyphon, SyphonFacts, running_syphons
from twinbus.syphon.control_socket import SyphonControls, make_syphon_handler

FACTS = SyphonFacts(
    role="command",
    primary="contoso",
    secondary="backup",
    state="running",
    is_paused=False,
    seconds=12.5,
    moved=7,
    moved_bytes=700,
    rate=3.5,
    rate_limit=None,
    first_left=None,
    entities=None,
    waiting=35,
    seconds_left=10.0,
    oldest_age_s=None,
    held=2,
    refused=0,
    expired=0,
    repeated=0,
    in_doubt=0,
    outside=0,
    destinations_down=("orders: unreachable",),
)


class Steered:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def change_pace(self, change: PaceChange) -> None:
        self.told.append(change)

    def facts(self) -> SyphonFacts:
        return replace(FACTS, is_paused=self.told[-1:] == ["pause"])


async def found(primary: str | None = None) -> list[RunningSyphon]:
    return await asyncio.to_thread(running_syphons, primary, wait_s=60)


async def test_several_of_one_process_are_found_and_steered_one_by_one() -> None:
    first, second = Steered(), Steered()
    async with SyphonControls("contoso", first), SyphonControls("contoso", second), SyphonControls("fabrikam", first):
        assert len(await found()) == 3
        one, other = await found("CONTOSO")
        assert one.facts == other.facts == FACTS
        assert one.id != other.id
        assert (await asyncio.to_thread(control.pause, other)).is_paused
        assert (first.told, second.told) == ([], ["pause"])
        assert not (await asyncio.to_thread(control.resume, other)).is_paused
        change = PaceChange(rate=5.0, entities=frozenset({"orders"}))
        await asyncio.to_thread(control.set_pace, one, change)
        lifted = PaceChange(rate=None, first=3)
        await asyncio.to_thread(control.set_pace, one, lifted)
        assert first.told == [change, lifted]
        assert control.choose([one, other], [other.id]) == [other]
        assert control.choose([one, other], [str(one.pid)]) == [one, other], "a process has both"
        with pytest.raises(OptionsError, match="no syphon is called '1-1'"):
            control.choose([one, other], ["1-1"])
    assert await found() == []
    assert not other.path.exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"speed": 3}, "unknown: 'speed'; a pace has rate, first, entities"),
        ({"rate": "fast"}, "rate must be a number or null, got 'fast'"),
        ({"rate": True, "first": 1.5}, "rate must be a number.*; first must be a whole number"),
        ({"rate": float("inf")}, "rate must be above 0 and at most"),
        ({"entities": "orders"}, "entities must be a list of names or null"),
        ({"entities": [["orders"]]}, "entities must be a list of names or null"),
        ({"entities": []}, "entities must name one or more"),
    ],
)
def test_a_pace_that_makes_no_sense_is_refused(arguments: dict[str, Any], text: str) -> None:
    steered = Steered()
    with pytest.raises(OptionsError, match=text):
        make_syphon_handler(steered)("pace", arguments)
    assert steered.told == []


def test_what_is_not_named_stays_as_it_is() -> None:
    steered = Steered()
    handle = make_syphon_handler(steered)
    handle("pace", {"first": None})
    handle("pace", {"entities": ["b", "a"], "rate": 4})
    assert steered.told == [PaceChange(first=None), PaceChange(rate=4, entities=frozenset({"a", "b"}))]
    assert PaceChange(first=None).rate is KEEP
    with pytest.raises(OptionsError, match="a syphon knows ping, status, pause, resume, pace"):
        handle("stop", {})


def test_one_that_does_not_answer_is_shown_with_the_reason(tmp_path: Path) -> None:
    here = Registration(control.SYPHON, "contoso", tmp_path / "nobody.sock", number=3)
    (silent,) = running_syphons()
    assert (silent.facts, silent.id.endswith("-3")) == (None, True)
    assert "no namespace" not in silent.problem
    with pytest.raises(TwinbusError, match=r"nobody\.sock"):
        control.pause(silent)
    here.end()


@pytest.mark.parametrize("said", ["pong", {"role": "command"}, None])
async def test_an_answer_of_something_else_is_no_syphon(said: object, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SyphonControls("contoso", Steered()):
        monkeypatch.setattr(control, "ask", lambda *_words, **_more: said)
        (odd,) = await found()
    assert odd.facts is None
    assert odd.problem


async def test_what_a_newer_syphon_adds_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SyphonControls("contoso", Steered()):
        monkeypatch.setattr(control, "ask", lambda *_words, **_more: FACTS.as_dict() | {"weather": "fine"})
        (newer,) = await found()
    assert newer.facts == FACTS


async def test_a_syphon_works_on_where_no_socket_can_be_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    async with SyphonControls("contoso", Steered()):
        assert await found() == []
    assert "cannot be steered from outside" in caplog.text


def test_the_client_says_who_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(TwinbusError, match="nothing is running at"):
        control_client.ask(tmp_path / "control.sock", "status")
