"""How a job reaches a namespace, without anything secret in it.

Options and closures travel in plans, event logs and the Spark UI. So they carry a *reference* to a connection string,
and the driver and each executor look it up where they run:

| reference       | where the secret is                                                                    |
|-----------------|----------------------------------------------------------------------------------------|
| `env:NAME`      | a connection string in an environment variable of the process that connects            |
| `file:PATH`     | a connection string in a file there, as secret stores mount them                       |
| `identity`      | nowhere: azure-identity finds who the machine is; the endpoint has to be given with it |
| `identity:KIND` | the same by one kind of credential, e.g. `identity:managed-identity`                   |
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.connection_string import has_secret, parts_of
from twinbus.errors import OptionsError

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace

IDENTITY = "identity"
WHAT_IS_RIGHT = "env:NAME, file:PATH, identity or identity:KIND"
_ENV, _FILE, _IDENTITY = "env:", "file:", "identity:"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"(?i)(SharedAccessKey|SharedAccessSignature|sig)\s*=[^;'\"]*")
_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Access:
    """Safe to print, to pickle and to show."""

    credential: str
    """A reference."""
    endpoint: str | None = None
    """HOST or HOST:PORT; with a connection string it is not needed, and must not contradict it.

    With an identity it may also be a connection string without a key, which can say how to get there.
    """

    @classmethod
    def by_identity(cls, endpoint: str, credential: str | None) -> Access:
        return cls(IDENTITY if credential is None else f"{_IDENTITY}{credential}", endpoint)

    @property
    def is_identity(self) -> bool:
        return self.credential == IDENTITY or self.credential.startswith(_IDENTITY)

    def problems(self) -> list[str]:
        """What is wrong with the reference itself; what it refers to may not even be here."""
        kind = self.credential
        if self.is_identity:
            return self._identity_problems()
        is_variable = kind.startswith(_ENV) and _NAME.fullmatch(kind.removeprefix(_ENV))
        is_file = kind.startswith(_FILE) and len(kind) > len(_FILE)
        if is_variable or is_file:
            return []
        # What is there instead may be the secret itself: it is not repeated.
        return [f"the credential must be a reference, {WHAT_IS_RIGHT}, never the secret: it would show in plans"]

    def namespace(self) -> Namespace:
        """The namespace, with what the reference stands for in this process. Raises `OptionsError` without secrets."""
        from twinbus.client.namespace import Namespace

        problems = self.problems()
        if problems:
            raise OptionsError("; ".join(problems))
        if self.is_identity:
            return self._by_identity()
        try:
            found = Namespace.from_connection_string(self._secret())
        except OptionsError as error:
            text = _SECRET.sub(r"\1=***", str(error))
            raise OptionsError(f"{self.credential}: {text}") from None
        if self.endpoint is not None and _host_of(self.endpoint) != found.host.lower():
            raise OptionsError(f"{self.credential} is for {found.host}, and the endpoint says {self.endpoint}")
        return found

    def _identity_problems(self) -> list[str]:
        from twinbus.client.identity import check_name

        if not self.endpoint:
            return ["identity needs the endpoint, e.g. contoso.servicebus.windows.net"]
        try:
            check_name(self._kind)
            if "=" in self.endpoint and has_secret(parts_of(self.endpoint)):
                return ["identity takes the place of a key, and the endpoint has one: it would show in plans"]
        except OptionsError as error:
            return [str(error)]
        return []

    @property
    def _kind(self) -> str:
        return self.credential.removeprefix(_IDENTITY) if self.credential != IDENTITY else "default"

    def _by_identity(self) -> Namespace:
        from twinbus.client.identity import identity
        from twinbus.client.namespace import Namespace

        endpoint, credential = self.endpoint or "", identity(self._kind)
        if "=" in endpoint:
            return Namespace.from_connection_string(endpoint, credential=credential)
        return Namespace(endpoint, credential)

    def _secret(self) -> str:
        if self.credential.startswith(_ENV):
            text = os.environ.get(self.credential.removeprefix(_ENV), "")
        else:
            text = _read(Path(self.credential.removeprefix(_FILE)))
        if not text.strip():
            raise OptionsError("nothing is there: it should hold a connection string")
        return text.strip()


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_BYTES_MAX).decode()
    except OSError as error:
        raise OptionsError(f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionsError("it is not text") from None


def _host_of(endpoint: str) -> str:
    host = endpoint.partition("://")[2] or endpoint
    return host.rstrip("/").rsplit(":", 1)[0].lower() if ":" in host else host.rstrip("/").lower()
