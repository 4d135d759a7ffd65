"""The names of all queues of a namespace, as its administration tells them."""

from __future__ import annotations

import asyncio

from twinbus.client.aio_secretary import next_page
from twinbus.client.namespace import Namespace
from twinbus.client.secretary import admin_failure, list_deadline
from twinbus.pairing.failure import FailureKind


async def queue_names(namespace: Namespace, attempt_s: float) -> list[list[str]]:
    """By page: each was one request. Raises `PermissionError` without the right to manage, else `OSError`."""
    page_s, pages = list_deadline(attempt_s), list[list[str]]()
    try:
        async with namespace.aio_admin_client(page_s) as admin:
            listing = admin.list_queues().by_page()
            while True:
                async with asyncio.timeout(page_s):
                    page = await next_page(listing)
                if page is None:
                    return pages
                pages.append([queue.name for queue in page])
    except Exception as error:
        failure = admin_failure(error)
        kind = PermissionError if failure.kind is FailureKind.UNAUTHORISED else OSError
        raise kind(str(failure)) from None
