"""Options: frozen values, checked once, all problems in one message."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from twinbus.broker.auth.access_rules import AccessRule, check_rules
from twinbus.broker.auth.jwt import ISSUERS_MAX, JwtIssuer
from twinbus.broker.core.commands import Creation
from twinbus.broker.entities.settings import QueueSettings, check_entity_path
from twinbus.broker.faults.throttle import ThrottleLimits
from twinbus.broker.limits import ServerLimits, TrafficLimits
from twinbus.broker.operations import Right
from twinbus.connection_string import ROOT_KEY_NAME
from twinbus.errors import OptionsError

NAMESPACE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,48}[A-Za-z0-9]")
_NAME_RULE = "2 to 50 letters, digits and hyphens, a letter first and no hyphen last"
_KEY_CHARACTERS = re.compile(r"[\x21-\x3a\x3c-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """What everything that is reached as a namespace has: a name, a port, keys, limits and a certificate."""

    name: str
    host: str = "127.0.0.1"
    port: int = 5672
    """0 picks a free one."""
    data: Path | None = None
    """Where its data lives (a folder with its name is made in it); None: in memory, gone at the end."""
    key: str | None = None
    """The access key; None: made once and kept with the data."""
    limits: TrafficLimits = field(default_factory=TrafficLimits)
    rules: tuple[AccessRule, ...] = ()
    """Shared access rules beside the one that every namespace has; keys that are missing are made once and kept."""
    server_limits: ServerLimits = field(default_factory=ServerLimits)
    cert: Path | None = None
    """The server's certificate for TLS, with its chain, in PEM form; None: one of our own, made once and kept."""
    key_file: Path | None = None
    """The private key of `cert`."""
    tls_only: bool | None = None
    """Whether peers that do not use TLS are refused; None: unless only this machine can reach the port."""

    def __post_init__(self) -> None:
        OptionsError.raise_for(self._problems())

    def _problems(self) -> list[str]:
        problems = []
        if not NAMESPACE_NAME.fullmatch(self.name):
            problems.append(f"a namespace name has {_NAME_RULE}, got {self.name!r}")
        if not 0 <= self.port <= 65_535:
            problems.append(f"a port is a number from 0 (any free one) to 65535, got {self.port}")
        if self.key is not None and not _KEY_CHARACTERS.fullmatch(self.key):
            problems.append("a key has printable ASCII characters without spaces and semicolons, at least one")
        if (self.cert is None) != (self.key_file is None):
            problems.append("a certificate and its key file are given both, or neither of them")
        try:
            check_rules((AccessRule(ROOT_KEY_NAME, frozenset(Right)), *self.rules))
        except OptionsError as error:
            problems.append(str(error))
        return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceOptions(EndpointOptions):
    """How to serve one namespace."""

    name: str = "local"
    queues: tuple[str, ...] = ()
    """Queues to create unless they exist."""
    entities: tuple[Creation, ...] = ()
    """More to create unless it exists, in this order."""
    queue_settings: QueueSettings = field(default_factory=QueueSettings)
    """For queues that are created now."""
    jwt_issuers: tuple[JwtIssuer, ...] = ()
    """Whose JSON web tokens are believed; without any, none are."""
    throttle: ThrottleLimits = field(default_factory=ThrottleLimits)
    """When to say that the server is busy."""
    ledger: Path | None = None
    """Where what becomes of messages is recorded; others may write there, too. None: nowhere."""
    ledger_ship_to: str | None = None
    """Where finished segments of the ledger are copied to, by URL or path. None: where TWINBUS_LEDGER_SHIP_TO says, or
    nowhere."""

    def _problems(self) -> list[str]:
        # Not super(): a dataclass with slots is made twice, and super() would be about the first one.
        problems = EndpointOptions._problems(self)
        for path in self.queues:
            try:
                check_entity_path(path)
            except OptionsError as error:
                problems.append(str(error))
        if self.ledger_ship_to is not None and self.ledger is None:
            problems.append("ledger_ship_to needs ledger: segments of that folder are copied")
        if len(self.jwt_issuers) > ISSUERS_MAX:
            problems.append(f"a namespace has at most {ISSUERS_MAX} token issuers, got {len(self.jwt_issuers)}")
        return problems
