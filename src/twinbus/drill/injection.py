"""Two ways to make an entity fail, and to end it: a fault of an embedded namespace, or the status of any entity."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal, Protocol

from twinbus.client.namespace import Namespace
from twinbus.control import control_client
from twinbus.drill.entity_admin import ACTIVE, SEND_DISABLED, DrilledEntity, EntityAdministration
from twinbus.drill.options import FAULTS, DrillOptions
from twinbus.errors import OptionsError, TwinbusError

GRACE_S = 120.0
"""How much longer than wanted a fault lasts at most, if its drill is killed and nobody undoes it."""
CONTROL_WAIT_S = 10.0

Way = Literal["status", "control"]


class Injection(Protocol):
    """Something that can be made wrong and put back."""

    way: Way
    text: str
    """What happens, for people."""

    def facts(self) -> dict[str, Any]:
        """What has to be known to undo it, by the names of a note."""

    async def begin(self) -> None: ...

    async def end(self) -> None:
        """Harmless if it has ended already."""


class ByControl:
    """A fault of an embedded namespace, ordered over its control socket. It ends by itself if everybody is killed."""

    way: Way = "control"

    def __init__(self, control: Path, options: DrillOptions, target: DrilledEntity) -> None:
        self._control = control
        self._path = target.path
        self._order: dict[str, Any] = {
            "fault": options.fault,
            "entities": [target.path],
            "length_ms": round((options.outage_s + GRACE_S) * 1000),
        }
        if options.how is not None:
            self._order["how"] = options.how
        self._id = ""
        self.text = f"{target.path} {FAULTS[options.fault]} ({options.fault}, over the control socket)"

    def facts(self) -> dict[str, Any]:
        return {"control": str(self._control), "fault_id": self._id}

    async def begin(self) -> None:
        self._id = str((await _ask(self._control, "fault.add", self._order))["id"])

    async def end(self) -> None:
        if self._id:
            await clear_fault(self._control, self._id, self._path)


class ByStatus:
    """The entity is SendDisabled until it is put back: works with every namespace that can be administered."""

    way: Way = "status"

    def __init__(self, admin: EntityAdministration, target: DrilledEntity) -> None:
        self._admin = admin
        self._path = target.path
        self._was = target.status
        self.text = f"{target.path} is set to {SEND_DISABLED} through the administration, and back to {target.status}"

    def facts(self) -> dict[str, Any]:
        return {"was": self._was}

    async def begin(self) -> None:
        await self._admin.set_status(self._path, SEND_DISABLED)

    async def end(self) -> None:
        await put_status_back(self._admin, self._path, self._was)


async def control_for(
    namespace: Namespace, options: DrillOptions, target: DrilledEntity, given: Path | None
) -> Path | None:
    """The control socket to use, None: the status is to be changed; raises `TwinbusError` if neither can do it."""
    control = None if options.by_status else await control_of(namespace, given)
    if control is None and options.fault != "no-send":
        raise OptionsError(
            f"{namespace.host_label} has no control socket here: only no-send can be done, by the entity's status"
        )
    if target.status != ACTIVE:
        raise TwinbusError(f"{target.path} is {target.status}, not {ACTIVE}: a drill begins when all is well")
    return control


def injection_for(
    control: Path | None, admin: EntityAdministration, options: DrillOptions, target: DrilledEntity
) -> Injection:
    return ByStatus(admin, target) if control is None else ByControl(control, options, target)


async def control_of(namespace: Namespace, given: Path | None = None) -> Path | None:
    """The control socket of an embedded namespace of this machine; None: it has none here. Raises `TwinbusError`."""
    if given is not None:
        told = await _ask(given, "status")
        if namespace.name not in (None, told["namespace"]) and told["port"] != namespace.port:
            raise OptionsError(f"--control {given} is that of {told['namespace']}, and the primary is {namespace.name}")
        return given
    trusted = namespace.sdk_options.get("connection_verify")
    if not isinstance(trusted, str | Path):
        return None
    found = Path(trusted).absolute().parent / control_client.CONTROL_SOCKET  # a served namespace has both in one folder
    return found if found.is_socket() and await _is_of(found, namespace) else None


async def _is_of(control: Path, namespace: Namespace) -> bool:
    """Whether it answers and is the namespace's own: a file of certificates may have been copied."""
    try:
        told = await _ask(control, "status")
    except TwinbusError:
        return False
    return isinstance(told, dict) and told.get("port") == namespace.port


async def clear_fault(control: Path, fault_id: str, entity: str) -> None:
    """Harmless if the fault, or the whole namespace process, is gone.

    A namespace that was started again counts its faults anew: one of the same id may be somebody else's.
    """
    if not control.exists():
        return
    in_force = await _ask(control, "fault.list")
    if any((each["id"], each["entities"]) == (fault_id, [entity]) for each in in_force):
        await _ask(control, "fault.clear", {"id": fault_id})


async def put_status_back(admin: EntityAdministration, path: str, status: str) -> None:
    """Only where it is still as the drill made it: what somebody has decided since stays."""
    if await admin.status(path) == SEND_DISABLED:
        await admin.set_status(path, status)


async def _ask(control: Path, request: str, arguments: dict[str, Any] | None = None) -> Any:
    return await asyncio.to_thread(control_client.ask, control, request, arguments, wait_s=CONTROL_WAIT_S)
