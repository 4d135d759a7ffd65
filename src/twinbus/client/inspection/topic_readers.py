"""Whether what is sent to a topic can reach anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.client.setup.administration import admin_failure
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
