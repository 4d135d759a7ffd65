"""SASL: who is at the other end. ANONYMOUS and PLAIN, both roles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from twinbus.amqp.composites import BINARY, STRING, SYMBOL, SYMBOLS, UBYTE, described
from twinbus.amqp.violations import ConnectionViolation

ANONYMOUS = "ANONYMOUS"
PLAIN = "PLAIN"


def _nobody(_user: str, _password: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ServerSasl:
    """What a server offers. `check_plain` decides on a user and password."""

    mechanisms: tuple[str, ...] = (ANONYMOUS,)
    check_plain: Callable[[str, str], bool] = _nobody
    allow_skip: bool = False
    """Take a peer that starts without SASL as anonymous."""


@dataclass(frozen=True, slots=True)
class ClientSasl:
    """How a client presents itself."""

    mechanism: str = ANONYMOUS
    user: str = ""
    password: str = ""


@described(0x40, "amqp:sasl-mechanisms:list", SYMBOLS)
@dataclass(frozen=True, slots=True)
class SaslMechanisms:
    sasl_server_mechanisms: tuple[str, ...]


@described(0x41, "amqp:sasl-init:list", SYMBOL, BINARY, STRING)
@dataclass(frozen=True, slots=True)
class SaslInit:
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@described(0x42, "amqp:sasl-challenge:list", BINARY)
@dataclass(frozen=True, slots=True)
class SaslChallenge:
    challenge: bytes


@described(0x43, "amqp:sasl-response:list", BINARY)
@dataclass(frozen=True, slots=True)
class SaslResponse:
    response: bytes


@described(0x44, "amqp:sasl-outcome:list", UBYTE, BINARY)
@dataclass(frozen=True, slots=True)
class SaslOutcome:
    code: int
    additional_data: bytes | None = None


SaslFrame: TypeAlias = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome

_OK, _AUTH = 0, 1


class ServerNegotiation:
    """One peer's way through SASL, seen from the server. `user` is known once an outcome with code 0 was given."""

    def __init__(self, sasl: ServerSasl) -> None:
        self._sasl = sasl
        self._challenged = False
        self.mechanism = ""
        self.user: str | None = None

    def answer(self, said: object) -> SaslChallenge | SaslOutcome:
        """The next frame for the peer; an outcome is the last one."""
        match said:
            case SaslInit() if not self._challenged:
                return self._begin(said)
            case SaslResponse() if self._challenged:
                return self._finish(said.response)
        raise ConnectionViolation("amqp:not-allowed", f"{type(said).__name__} is not expected now")

    def _begin(self, init: SaslInit) -> SaslChallenge | SaslOutcome:
        self.mechanism = init.mechanism
        if init.mechanism not in self._sasl.mechanisms:
            return SaslOutcome(_AUTH)
        if init.mechanism == PLAIN and init.initial_response is None:
            self._challenged = True
            return SaslChallenge(b"")
        return self._finish(init.initial_response or b"")

    def _finish(self, response: bytes) -> SaslOutcome:
        if self.mechanism == ANONYMOUS:
            self.user = (
                "anonymous"  # the response is a trace at best; the official JavaScript client puts its key name there
            )
        elif self.mechanism == PLAIN:
            self.user = self._plain_user(response)
        return SaslOutcome(_OK if self.user is not None else _AUTH)

    def _plain_user(self, response: bytes) -> str | None:
        try:
            _, user, password = response.decode().split("\0")
        except ValueError:
            return None
        return user if self._sasl.check_plain(user, password) else None


class ClientNegotiation:
    """A client's way through SASL. `done` once the server has said yes."""

    def __init__(self, sasl: ClientSasl, hostname: str | None) -> None:
        self._sasl = sasl
        self._hostname = hostname
        self.mechanism = sasl.mechanism
        self.user = sasl.user if sasl.mechanism == PLAIN else "anonymous"
        self.done = False

    def answer(self, said: object) -> SaslInit | SaslResponse | None:
        """The next frame for the server, None when it had the last word."""
        match said:
            case SaslMechanisms():
                return self._begin(said.sasl_server_mechanisms)
            case SaslChallenge():
                return SaslResponse(self._response())
            case SaslOutcome():
                self.done = said.code == _OK
                if not self.done:
                    raise ConnectionViolation("amqp:unauthorized-access", f"SASL outcome {said.code}")
                return None
        raise ConnectionViolation("amqp:not-allowed", f"{type(said).__name__} is not expected now")

    def _begin(self, offered: tuple[str, ...]) -> SaslInit:
        if self.mechanism not in offered:
            raise ConnectionViolation("amqp:unauthorized-access", f"the server does not offer {self.mechanism}")
        return SaslInit(self.mechanism, self._response(), self._hostname)

    def _response(self) -> bytes:
        return f"\0{self._sasl.user}\0{self._sasl.password}".encode() if self.mechanism == PLAIN else b""
