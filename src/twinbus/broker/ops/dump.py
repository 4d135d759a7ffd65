"""Diagnostic dumps: the state of a namespace at one moment, as a file to look into later.

Written before a restart and on request. A dump holds numbers and names, never a message, a key or a token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from twinbus.amqp.codec.performatives import Source, Target
from twinbus.amqp.connection import Connection
from twinbus.amqp.receiving_link import ReceivingLink
from twinbus.broker.entities.queue import Queue
from twinbus.errors import TwinbusError
from twinbus.own_files import make_own_folder, refuse_foreign_link, write_whole
from twinbus.units import file_time, offset_time, time_of

DUMPS_FOLDER = "dumps"
DUMPS_KEPT = 20
HIDDEN = "(hidden)"
_SECRET_NAME = re.compile(r"secret|password|token|signature|credential|keys?$", re.IGNORECASE)
_TEXT_LENGTH_MAX = 1_000


def queue_facts(queue: Queue) -> dict[str, Any]:
    """A queue, how it is set up, and how much is in it."""
    facts = {
        "path": queue.row.path,
        "settings": asdict(queue.settings),
        "active": queue.active,
        "deferred": queue.deferred,
        "scheduled": queue.scheduled,
        "payload_bytes": queue.payload_bytes,
        "locked": len(queue.locks),
        "rows_in_memory": queue.held_rows,
        "receivers": len(queue.receivers.all),
        "damage": queue.damage,
    }
    if queue.dead_letter is not None:
        facts["dead_letter"] = queue_facts(queue.dead_letter)
    if queue.transfer_dead_letter is not None:
        facts["transfer_dead_letter"] = queue_facts(queue.transfer_dead_letter)
    return facts


def connection_facts(connection: Connection) -> dict[str, Any]:
    """A connection and its links; the name it authenticated with, not the proof."""
    links = [link for session in connection.sessions for link in session.links]
    return {
        "peer": None if connection.remote_open is None else connection.remote_open.container_id,
        "authenticated_as": connection.authenticated_as,
        "sessions": len(connection.sessions),
        "links": [
            {
                "name": link.name,
                "peer": "sends" if isinstance(link, ReceivingLink) else "receives",
                "address": _address(link.target if isinstance(link, ReceivingLink) else link.source),
                "attached": link.attached,
            }
            for link in links
        ],
    }


def _address(terminus: object) -> str | None:
    return terminus.address if isinstance(terminus, Source | Target) else None


def write_dump(
    home: Path, reason: str, facts: Mapping[str, Any], now_ms: int, *, secrets: Collection[str] = ()
) -> Path:
    """The file, new in `home`; only the newest are kept. Raises `TwinbusError` if it cannot be written.

    `secrets` are hidden wherever they occur, and so is every value whose name suggests a secret.
    """
    folder = home / DUMPS_FOLDER
    moment = time_of(now_ms)
    content = {"reason": reason, "time": offset_time(moment, "milliseconds"), **facts}
    text = json.dumps(without_secrets(content, [secret for secret in secrets if secret]), indent=2)
    try:
        refuse_foreign_link(folder)
        make_own_folder(folder)
        path = _free_name(folder, file_time(moment, milliseconds=True), reason)
        write_whole(path, text + "\n")
        _drop_oldest(folder)
    except OSError as error:
        raise TwinbusError(f"the dump cannot be written to {folder}: {error.strerror or error}") from None
    return path


def without_secrets(value: Any, secrets: Iterable[str] = ()) -> Any:
    """The value as JSON can write it, with everything hidden that is named like a secret or contains one of these."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):  # its fields have names, by which some are hidden
        value = value._asdict()
    match value:
        case Mapping():
            return {
                str(key): HIDDEN if _is_hidden(str(key), each) else without_secrets(each, secrets)
                for key, each in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [without_secrets(each, secrets) for each in value]
        case bool() | int() | float() | None:
            return value
        case Enum():
            return without_secrets(value.value, secrets)
        case _:
            return _hide(str(value), secrets)


def _is_hidden(name: str, value: object) -> bool:
    """A number called `tokens` is a count, and no secret."""
    return _SECRET_NAME.search(name) is not None and value is not None and not isinstance(value, int | float)


def _hide(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text if len(text) <= _TEXT_LENGTH_MAX else text[:_TEXT_LENGTH_MAX] + "..."


def _free_name(folder: Path, moment: str, reason: str) -> Path:
    plain = re.sub(r"[^a-z0-9]+", "-", reason.lower()).strip("-")[:40] or "dump"
    path = folder / f"{moment}-{plain}.json"
    number = 1
    while path.exists():
        number += 1
        path = folder / f"{moment}-{plain}-{number}.json"
    return path


def _drop_oldest(folder: Path) -> None:
    for path in sorted(folder.glob("*.json"))[:-DUMPS_KEPT]:  # the names begin with the time
        path.unlink(missing_ok=True)
