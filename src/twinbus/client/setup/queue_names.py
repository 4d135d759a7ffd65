"""The names of all queues of a namespace, as its administration tells them."""

from __future__ import annotations

from twinbus.client.aio.provisioner import every_page
from twinbus.client.namespace import Namespace
from twinbus.client.setup.administration import admin_failure, list_deadline
from twinbus.pairing.sending.failure import FailureKind


async def queue_names(namespace: Namespace, attempt_s: float) -> list[list[str]]:
    """By page: each was one request. Raises `PermissionError` without the right to manage, else `OSError`."""
    page_s = list_deadline(attempt_s)
    try:
        async with namespace.aio_admin_client(page_s) as admin:
            return [[queue.name for queue in page] async for page in every_page(page_s, admin.list_queues())]
    except Exception as error:
        failure = admin_failure(error)
        kind = PermissionError if failure.kind is FailureKind.UNAUTHORISED else OSError
        raise kind(str(failure)) from None
