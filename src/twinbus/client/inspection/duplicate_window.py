"""How long an entity remembers the ids of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.client.setup.preparation import Detection, ReadDetection
from twinbus.client.sync.provisioner import BacklogProvisioner
from twinbus.errors import TwinbusError
from twinbus.pairing.sending.failure import FailureKind

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace


def duplicate_window_s(namespace: Namespace, entity: str, attempt_s: float) -> float | None:
    """The window of its duplicate detection; None: it has none, or the credential may not ask.

    Raises `TwinbusError` if it cannot be asked now.
    """
    with BacklogProvisioner(namespace, namespace, attempt_s=attempt_s) as asking:
        found = asking.perform(ReadDetection(entity))
    if isinstance(found, Detection):
        return found.window_s
    if found.kind in (FailureKind.UNAUTHORISED, FailureKind.NOT_FOUND):
        return None
    raise TwinbusError(f"it cannot be read whether {entity} would drop messages as duplicates: {found}")
