"""The control socket of a running syphon: status, pause, resume and pace. `control.py` is the other end."""

from __future__ import annotations

import itertools
import logging
from typing import Any, Protocol

from twinbus.control.control_server import Handler, RegisteredControls
from twinbus.errors import OptionsError, TwinbusError
from twinbus.plain_text import first_few
from twinbus.syphon.control import SHOWN_MAX, SYPHON, SyphonFacts
from twinbus.syphon.pump.pace import KEEP, PaceChange
from twinbus.syphon.syphon import Syphon

logger = logging.getLogger("twinbus.syphon")

REQUESTS = ("ping", "status", "pause", "resume", "pace")
PACE_ARGUMENTS = ("rate", "first", "entities")
_NUMBERS = itertools.count(1)
"""Of the syphons of this process."""


class Steerable(Protocol):
    """What can be paused and paced: a syphon, or several that share a backlog."""

    def pause(self) -> None:
        """Send nothing more until `resume`."""

    def resume(self) -> None:
        """Go on."""

    def change_pace(self, change: PaceChange) -> None:
        """Another rate, number of messages or choice of entities."""

    def facts(self) -> SyphonFacts:
        """How it is now."""


class SteeredSyphon:
    """A syphon that runs by itself."""

    def __init__(self, syphon: Syphon, role: str) -> None:
        self._syphon = syphon
        self._role = role

    def pause(self) -> None:
        self._syphon.pause()

    def resume(self) -> None:
        self._syphon.resume()

    def change_pace(self, change: PaceChange) -> None:
        self._syphon.change_pace(change)

    def facts(self) -> SyphonFacts:
        syphon = self._syphon
        progress, pace = syphon.current_progress(), syphon.pump.pace
        down = [f"{each.path}: {each.reason}" for each in progress.destinations if each.state == "resting"]
        return SyphonFacts(
            role=self._role,
            primary=syphon.primary_name,
            secondary=syphon.secondary_name,
            state=progress.state,
            is_paused=not pace.is_running,
            seconds=progress.seconds,
            moved=progress.moved,
            moved_bytes=progress.moved_bytes,
            rate=progress.rate,
            rate_limit=None if pace.rate is None else pace.rate * syphon.processes,
            first_left=pace.first_left,
            entities=None if pace.entities is None else tuple(sorted(pace.entities)[:SHOWN_MAX]),
            waiting=progress.left,
            seconds_left=progress.seconds_left,
            oldest_age_s=progress.oldest_age_s,
            held=progress.held,
            refused=progress.refused,
            expired=progress.expired,
            repeated=progress.repeated,
            in_doubt=progress.in_doubt,
            outside=progress.outside,
            processes=syphon.processes,
            destinations_down=tuple(down[:SHOWN_MAX]),
            troubles=progress.troubles[:SHOWN_MAX],
        )


class SyphonControls:
    """`async with SyphonControls(name, steered):` it can be steered inside the block. It works on if it cannot."""

    def __init__(self, primary_name: str, steered: Steerable) -> None:
        self._name = primary_name
        self._handle = make_syphon_handler(steered)
        self._controls: RegisteredControls | None = None

    async def start(self) -> None:
        """Called in the event loop of what is steered."""
        try:
            self._controls = RegisteredControls(SYPHON, self._name, self._handle, number=next(_NUMBERS))
            await self._controls.start()
        except (OSError, TwinbusError) as error:
            logger.warning("the syphon of %s cannot be steered from outside: %s", self._name, error)

    async def stop(self) -> None:
        """Harmless if it is stopped already."""
        if self._controls is not None:
            await self._controls.stop()

    async def __aenter__(self) -> SyphonControls:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()


def steerable(syphon: Syphon, role: str) -> SyphonControls:
    """The controls of a syphon. `role`: see `SyphonFacts`."""
    return SyphonControls(syphon.primary_name, SteeredSyphon(syphon, role))


def make_syphon_handler(steered: Steerable) -> Handler:
    """Answers the requests of one syphon: the handler of a `ControlServer`."""

    def handle(request: str, arguments: dict[str, Any]) -> Any:
        match request:
            case "ping":
                return "pong"
            case "status":
                pass
            case "pause":
                steered.pause()
            case "resume":
                steered.resume()
            case "pace":
                steered.change_pace(read_pace_change(arguments))
            case _:
                raise OptionsError(f"unknown request {request!r:.60}: a syphon knows {', '.join(REQUESTS)}")
        return steered.facts().as_dict()

    return handle


def read_pace_change(arguments: dict[str, Any]) -> PaceChange:
    """The change that a request asks for. Raises `OptionsError` for everything that makes no sense in it."""
    unknown = [repr(name)[:40] for name in arguments if name not in PACE_ARGUMENTS]
    if unknown:
        raise OptionsError(f"unknown: {first_few(unknown, 5)}; a pace has {', '.join(PACE_ARGUMENTS)}")
    rate, first, entities = (arguments.get(name, KEEP) for name in PACE_ARGUMENTS)
    problems = []
    if "rate" in arguments and (isinstance(rate, bool) or not isinstance(rate, int | float | None)):
        problems.append(f"rate must be a number or null, got {rate!r:.40}")
    if "first" in arguments and (isinstance(first, bool) or not isinstance(first, int | None)):
        problems.append(f"first must be a whole number or null, got {first!r:.40}")
    if "entities" in arguments and not _is_names(entities):
        problems.append(f"entities must be a list of names or null, got {entities!r:.40}")
    OptionsError.raise_for(problems)
    return PaceChange(rate=rate, first=first, entities=frozenset(entities) if isinstance(entities, list) else entities)


def _is_names(entities: object) -> bool:
    is_list = isinstance(entities, list) and all(isinstance(name, str) for name in entities)
    return entities is None or is_list
