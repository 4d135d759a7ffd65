"""Options of commands that serve: where data is kept, keys, the network, limits. `serve` and `proxy` share them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from twinbus.cli.arguments.completion import named_in
from twinbus.cli.arguments.option_groups import ArgumentGroup, option
from twinbus.errors import OptionsError

DEFAULT_DATA = Path(".twinbus")


@dataclass(frozen=True, kw_only=True)
class DataArguments(ArgumentGroup):
    panel: ClassVar[str] = "Storage"
    data: Path | None = option(
        None,
        "DIR",
        "The data directory: keys, a certificate and the control socket are kept there, in a folder by the name.  "
        f"[default: {DEFAULT_DATA}]",
    )
    memory: bool = option(False, None, "Keep nothing: keys end with the process.", "--memory")

    def __post_init__(self) -> None:
        if self.data is not None and str(self.data) in ("", "."):
            raise OptionsError("--data takes a folder of its own, e.g. ./bus, not the current one")
        if self.memory and self.data is not None:
            raise OptionsError("--memory and --data exclude each other: choose one")

    @property
    def folder(self) -> Path | None:
        return None if self.memory else self.data or DEFAULT_DATA


@dataclass(frozen=True, kw_only=True)
class KeyArguments(ArgumentGroup):
    panel: ClassVar[str] = "Keys and tokens"
    key: str | None = option(
        None,
        "KEY",
        "The access key; rather set TWINBUS_KEY, which the process list does not show.  "
        "[default: made once and kept with the data]",
        envvar="TWINBUS_KEY",
        show_envvar=False,
    )
    rule: list[str] | None = option(
        None,
        "NAME:RIGHTS",
        "Another key, e.g. reader:Listen or app:Send+Listen; it is made once and kept with the data, or given as "
        "NAME:RIGHTS:KEY. Repeat for more.",
    )


@dataclass(frozen=True, kw_only=True)
class TlsArguments(ArgumentGroup):
    panel: ClassVar[str] = "Network"
    cert: Path | None = option(
        None,
        "FILE",
        "The certificate for TLS, with its chain, in PEM form.  "
        "[default: one of our own, signed by the authority that TwinbusCA in the connection string names]",
    )
    key_file: Path | None = option(None, "FILE", "The private key of --cert, in PEM form, without passphrase.")
    tls_only: bool | None = option(
        None,
        None,
        "Refuse connections without TLS, or take them.  "
        "[default: refuse them unless only this machine can reach the address]",
        "--tls-only/--no-tls-only",
        show_default=False,
    )

    @property
    def certificate(self) -> tuple[Path, Path] | None:
        """Both files or None; their contents are read when a server starts."""
        if self.cert is None and self.key_file is None:
            return None
        if self.cert is None or self.key_file is None:
            raise OptionsError("--cert and --key-file need each other: give both, or none for a certificate of our own")
        return self.cert, self.key_file


@dataclass(frozen=True, kw_only=True)
class ServerLimitArguments(ArgumentGroup):
    panel: ClassVar[str] = "Limits"
    max_connections: int | None = option(None, "N", "Connections that are taken at a time.  [default: 5000]")
    limit: list[str] | None = option(
        None,
        "NAME=NUMBER",
        "Another limit, e.g. message_bytes_max=1048576 or unauthenticated_s=5; a name that does not exist lists them "
        "all. Repeat for more.",
        autocompletion=named_in("limit_names", "LIMIT_NAMES", "="),
    )

    def limits(self) -> dict[str, float]:
        from twinbus.limit_names import parse_limits

        connections = {} if self.max_connections is None else {"connections": self.max_connections}
        return parse_limits(self.limit or []) | connections
