"""Checks both namespaces when a proxy starts, so that a wrong configuration is reported at once.

A proxy starts although a namespace is down: that is when it is needed. It does not start if a namespace refuses the
credential, or if something else than Service Bus answers: that does not pass by itself.
"""

from __future__ import annotations

import ssl

from twinbus.client.namespace import Namespace
from twinbus.errors import PairingError
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.failures import ConnectionFailed

_OTHER_PROTOCOLS = frozenset({"amqp:connection:framing-error", "amqp:decode-error", "amqp:not-implemented"})


async def check_primary(primary: Namespace, attempt_s: float, entity: str | None) -> str | None:
    """Connect and log in, for an entity if the key may be for some only. Why it does not answer; None: it does.

    Raises `PairingError` if waiting will not help.
    """
    try:
        async with NamespaceConnection(primary.dial(attempt_s), attempt_s=attempt_s) as connection:
            await connection.log_in(entity or "")
    except ConnectionFailed as error:
        problem = _lasting_problem(error.failure)
        if error.failure.kind is FailureKind.UNAUTHORISED:
            hint = "" if entity else " (if the key is for some entities only, name one of them with --entities)"
            problem = f"refuses the credential: {error.failure.text}{hint}"
        if problem is not None:
            raise PairingError(f"the primary {primary.host_label} at {primary.address} {problem}") from None
        return str(error.failure)
    return None


async def check_secondary(secondary: Namespace, attempt_s: float) -> None:
    """Connect; pairing looks at everything else. Raises `PairingError` if waiting will not help."""
    try:
        async with NamespaceConnection(secondary.dial(attempt_s), attempt_s=attempt_s):
            pass
    except ConnectionFailed as error:
        problem = _lasting_problem(error.failure)
        if problem is not None:
            raise PairingError(f"the secondary {secondary.host_label} at {secondary.address} {problem}") from None


def _lasting_problem(failure: Failure) -> str | None:
    if isinstance(failure.error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not trusted: {failure.error.verify_message}"
    if isinstance(failure.error, ssl.SSLError):
        return f"does not answer as a Service Bus namespace does: it does not speak TLS ({failure.error.reason})"
    if failure.condition in _OTHER_PROTOCOLS:
        return f"does not answer as a Service Bus namespace does: {failure.text}"
    return None
