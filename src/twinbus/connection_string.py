"""Connection strings: how a namespace is reached, in one line of text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from twinbus.errors import OptionsError

ROOT_KEY_NAME = "RootManageSharedAccessKey"

TLS_PORT, PLAIN_PORT = 5671, 5672
"""Where the official clients knock when no port is written."""
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Hosts that mean every address of a machine, each with the one that leads there from the machine itself."""

_HOST = re.compile(r"[A-Za-z0-9._-]+")
_SHOWN = re.compile(r"[A-Za-z+.:/\[\]0-9_-]{0,80}")
_VALUE = re.compile(r"\S([^;\r\n]*[^\s;])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionString:
    """A namespace's address and key.

    `UseDevelopmentEmulator` makes the official clients speak plain AMQP to the port that is written. `TwinbusNamespace`
    carries the name that the host does not, `TwinbusCA` the file by which to know the server's certificate; both are
    ours and ignored by other clients.
    """

    host: str
    port: int
    namespace: str
    key: str
    key_name: str = ROOT_KEY_NAME
    ca_file: Path | None = None
    """Certificates to trust when connecting over TLS; None: those that the machine trusts."""
    is_emulator: bool = True

    def __post_init__(self) -> None:
        OptionsError.raise_for(self._problems())

    def _problems(self) -> list[str]:
        problems = []
        if not _HOST.fullmatch(self.host) and not is_address(self.host):
            problems.append(f"Endpoint needs a host name or address, got {self.host!r}")
        if not 1 <= self.port <= 65_535:
            problems.append(f"the port in Endpoint is a number from 1 to 65535, got {self.port}")
        named = {
            "SharedAccessKeyName": self.key_name,
            "SharedAccessKey": self.key,
            "TwinbusNamespace": self.namespace,
            "TwinbusCA": "file" if self.ca_file is None else str(self.ca_file),
        }
        return problems + [
            f"{name} cannot be empty, have a semicolon or a line break, or begin or end with a space"
            for name, value in named.items()
            if not can_be_written(value)
        ]

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        parts = [
            f"Endpoint=sb://{host}:{self.port}",
            f"SharedAccessKeyName={self.key_name}",
            f"SharedAccessKey={self.key}",
            "UseDevelopmentEmulator=true" if self.is_emulator else "",
            f"TwinbusNamespace={self.namespace}",
            f"TwinbusCA={self.ca_file}" if self.ca_file is not None else "",
        ]
        return ";".join(part for part in parts if part)

    @classmethod
    def parse(cls, text: str, *, namespace: str | None = None) -> ConnectionString:
        """Read a connection string, ours or one of the real service; raises `OptionsError` saying what is wrong in it.

        The namespace's name is the one given here, else `TwinbusNamespace`, else the first label of the host.
        """
        parts = parts_of(text)
        missing = [
            name for name in ("Endpoint", "SharedAccessKeyName", "SharedAccessKey") if not parts.get(name.lower())
        ]
        if missing:
            raise OptionsError(f"the connection string has no {' and no '.join(missing)}")
        is_emulator = parts.get("usedevelopmentemulator", "").lower() == "true"
        host, port = endpoint_of(parts["endpoint"])
        ca_file = parts.get("twinbusca")
        return cls(
            host=host,
            port=(PLAIN_PORT if is_emulator else TLS_PORT) if port is None else port,
            namespace=namespace or parts.get("twinbusnamespace") or _name_in(host),
            key=parts["sharedaccesskey"],
            key_name=parts["sharedaccesskeyname"],
            ca_file=Path(ca_file) if ca_file else None,
            is_emulator=is_emulator,
        )


def can_be_written(value: str) -> bool:
    """Whether a connection string can carry this value."""
    return _VALUE.fullmatch(value) is not None


def parts_of(text: str) -> dict[str, str]:
    """The parts of a connection string by their names in lower case; raises `OptionsError`, without their secrets."""
    parts: dict[str, str] = {}
    for part in text.strip().split(";"):
        name, equals, value = part.partition("=")
        if not part.strip():
            continue
        if not equals or not name.strip():
            # The part itself may be a secret: only its position is reported.
            place = len(parts) + 1
            raise OptionsError(
                f"part {place} of the connection string is not Name=value; parts are joined by semicolons"
            )
        parts[name.strip().lower()] = value.strip()
    return parts


def has_secret(parts: Mapping[str, str]) -> bool:
    """Whether a connection string has a key or a signature, even if only half of it."""
    return any(parts.get(each) for each in ("sharedaccesssignature", "sharedaccesskeyname", "sharedaccesskey"))


def endpoint_of(text: str) -> tuple[str, int | None]:
    """Host and port of `sb://host:port/`."""
    try:
        endpoint = urlsplit(text)
        host, port = endpoint.hostname, endpoint.port
    except ValueError:
        host, port = None, None
    if not host or endpoint.scheme.lower() != "sb":
        # What follows a forgotten semicolon may be a key: only what looks like an address is repeated.
        shown = _SHOWN.match(text)
        raise OptionsError(
            "Endpoint must be sb://HOST or sb://HOST:PORT with a port from 1 to 65535, "
            f"got {shown[0] if shown is not None else ''!r}"
        )
    return host, port


def _name_in(host: str) -> str:
    """The namespace in `contoso.servicebus.windows.net`; an address or localhost has none."""
    label, dot, _ = host.partition(".")
    if dot and not is_address(host):
        return label
    raise OptionsError(f"{host} does not tell the namespace's name: add TwinbusNamespace=NAME to the connection string")


def is_address(host: str) -> bool:
    """Whether a host is an IP address, not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
