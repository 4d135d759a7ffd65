"""Reads the meter of an embedded namespace from its `/metrics`."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from azure.core.credentials import AzureNamedKeyCredential

from twinbus.client.namespace import Namespace
from twinbus.errors import OptionsError

WAIT_S = 5.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024


async def read_meter(namespace: Namespace) -> dict[str, Any] | None:
    """What it has counted since it was started; None: it does not answer. It is shown the key, so it must be ours."""
    if not isinstance(namespace.credential, AzureNamedKeyCredential):
        return None
    name, key = namespace.credential.named_key
    try:
        access = await asyncio.to_thread(namespace.admin_access)
        async with (
            aiohttp.ClientSession(auth=aiohttp.BasicAuth(name, key)) as http,
            http.get(
                f"https://{access.host}/metrics?format=json",
                ssl=access.tls,
                timeout=aiohttp.ClientTimeout(total=WAIT_S),
                allow_redirects=False,
            ) as answer,
        ):
            if answer.status != 200 or (answer.content_length or 0) > ANSWER_BYTES_MAX:
                return None
            said = await answer.json()
    except (OSError, aiohttp.ClientError, TimeoutError, ValueError, OptionsError):
        return None
    return said if isinstance(said, dict) and isinstance(said.get("operations"), list) else None
