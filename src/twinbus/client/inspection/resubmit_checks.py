"""What would become of messages that are sent again: whether anybody reads the topic, and whether they are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.client.setup.administration import admin_failure
from twinbus.client.setup.preparation import Detection, ReadDetection
from twinbus.client.sync.provisioner import BacklogProvisioner
from twinbus.errors import TwinbusError
from twinbus.pairing.sending.failure import FailureKind

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace


def is_read_topic(namespace: Namespace, entity: str, attempt_s: float) -> bool | None:
    """True for a topic with subscriptions, False for what is not a topic; None if the credential may not ask.

    Raises `TwinbusError` for a topic without subscriptions, which loses what it gets, and if it cannot be asked now.
    """
    try:
        with namespace.admin_client(attempt_s) as admin:
            admin.get_topic(entity)
            has_subscription = next(iter(admin.list_subscriptions(entity)), None) is not None
    except AttributeError:  # so the SDK reads the settings of a queue
        return False
    except Exception as error:
        failure = admin_failure(error)
        if failure.kind is FailureKind.NOT_FOUND:
            return False
        if failure.kind is FailureKind.UNAUTHORISED:
            return None
        raise TwinbusError(f"it cannot be read whether {entity} is a topic that loses messages: {failure}") from None
    if not has_subscription:
        raise TwinbusError(f"{entity} is a topic without subscriptions: it would lose every message")
    return True


def duplicate_window_s(namespace: Namespace, entity: str, attempt_s: float) -> float | None:
    """How long an entity remembers ids of messages; None: not at all, or the credential may not ask.

    Raises `TwinbusError` if it cannot be asked now.
    """
    with BacklogProvisioner(namespace, namespace, attempt_s=attempt_s) as asking:
        found = asking.perform(ReadDetection(entity))
    if isinstance(found, Detection):
        return found.window_s
    if found.kind in (FailureKind.UNAUTHORISED, FailureKind.NOT_FOUND):
        return None
    raise TwinbusError(f"it cannot be read whether {entity} would drop messages as duplicates: {found}")
