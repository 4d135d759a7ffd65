"""The entity of a drill and its status, read and changed through the administration of its namespace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    EntityStatus,
    QueueProperties,
    TopicProperties,
)

from twinbus.client.namespace import Namespace
from twinbus.client.setup.administration import admin_failure
from twinbus.errors import OptionsError, TwinbusError
from twinbus.pairing.sending.failure import FailureKind

Result = TypeVar("Result")

_OBJECT = re.compile(r" ssl:<[^>]*>")
"""Noise that the HTTP client adds to the address of a server that it cannot reach."""

ACTIVE, SEND_DISABLED = EntityStatus.ACTIVE.value, EntityStatus.SEND_DISABLED.value


@dataclass(frozen=True, slots=True)
class DrilledEntity:
    path: str
    is_topic: bool
    has_sessions: bool
    is_partitioned: bool
    status: str

    @property
    def kind(self) -> str:
        return "topic" if self.is_topic else "session queue" if self.has_sessions else "queue"


class EntityAdministration:
    """The administration of one namespace, in an `async with` block. Raises `TwinbusError` that names it."""

    def __init__(self, namespace: Namespace, attempt_s: float) -> None:
        self._namespace = namespace
        self._attempt_s = attempt_s
        self._admin = namespace.aio_admin_client(attempt_s)

    async def __aenter__(self) -> EntityAdministration:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._admin.close()

    async def find(self, path: str) -> DrilledEntity:
        """Raises `OptionsError` if there is no queue or topic of this name."""
        found = await self._read(path)
        if found is None:
            raise OptionsError(f"{self._namespace.host_label} has no queue or topic {path!r}: see --entity")
        return _target(path, found)

    async def status(self, path: str) -> str | None:
        """The entity's status; None: it is gone."""
        found = await self._read(path)
        return None if found is None else _status(found)

    async def set_status(self, path: str, status: str) -> None:
        """Change the status and nothing else."""
        found = await self._read(path)
        if isinstance(found, QueueProperties):
            await self._answer(self._admin.update_queue(found, status=EntityStatus(status)))
        elif found is not None:
            await self._answer(self._admin.update_topic(found, status=EntityStatus(status)))
        else:
            raise TwinbusError(f"{self._namespace.host_label} has no queue or topic {path!r} any more")

    async def make_subscription(self, topic: str, name: str, mark: str, value: str) -> None:
        """A subscription that gets only messages with this application property."""
        await self._answer(self._admin.create_subscription(topic, name))
        marked = CorrelationRuleFilter(properties={mark: value})
        await self._answer(self._admin.create_rule(topic, name, "marked", filter=marked))
        await self._answer(self._admin.delete_rule(topic, name, "$Default"))

    async def remove_subscription(self, topic: str, name: str) -> None:
        """Harmless if it is gone."""
        try:
            await self._answer(self._admin.delete_subscription(topic, name))
        except _Gone:
            return

    async def _read(self, path: str) -> QueueProperties | TopicProperties | None:
        try:
            return await self._answer(self._admin.get_queue(path))
        except _Gone:
            pass
        try:
            return await self._answer(self._admin.get_topic(path))
        except _Gone:
            return None

    async def _answer(self, asking: Awaitable[Result]) -> Result:
        try:
            async with asyncio.timeout(self._attempt_s):
                return await asking
        except (ResourceNotFoundError, AttributeError) as error:  # the latter is what the SDK makes of another kind
            raise _Gone(str(admin_failure(error))) from None
        except Exception as error:
            failure = admin_failure(error)
            hint = " (a drill needs Manage there)" if failure.kind is FailureKind.UNAUTHORISED else ""
            raise TwinbusError(f"{self._namespace.host_label}: {_OBJECT.sub('', str(failure))}{hint}") from None


class _Gone(TwinbusError):
    """There is no such thing."""


def _target(path: str, found: QueueProperties | TopicProperties) -> DrilledEntity:
    is_topic = isinstance(found, TopicProperties)
    return DrilledEntity(
        path=path,
        is_topic=is_topic,
        has_sessions=not is_topic and bool(getattr(found, "requires_session", False)),
        is_partitioned=bool(found.enable_partitioning),
        status=_status(found),
    )


def _status(found: QueueProperties | TopicProperties) -> str:
    return str(getattr(found.status, "value", found.status))
