"""Connection strings: how a namespace is reached, in one line of text."""

from __future__ import annotations

from dataclasses import dataclass

ROOT_KEY_NAME = "RootManageSharedAccessKey"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionString:
    """An embedded namespace's address and key.

    `UseDevelopmentEmulator` makes the official clients speak plain AMQP to the port that is written;
    `TwinbusNamespace` is ours, carries the name that the host does not, and is ignored by other clients.
    """

    host: str
    port: int
    namespace: str
    key: str
    key_name: str = ROOT_KEY_NAME

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            f"Endpoint=sb://{host}:{self.port};SharedAccessKeyName={self.key_name};SharedAccessKey={self.key};"
            f"UseDevelopmentEmulator=true;TwinbusNamespace={self.namespace}"
        )
