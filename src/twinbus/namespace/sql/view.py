"""How a rule looks at a message."""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from twinbus.amqp.values import Value


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return self.name


MISSING: Final = Missing.MISSING
"""A user property that the message does not have; one that is there and null is None."""


class MessageView(Protocol):
    """A message to a rule. Rules ask often: a view should read the message's bytes once, and only when asked."""

    def system(self, name: str, /) -> Value:
        """The system property, or None if the message does not set it.

        `name` is one of `SYSTEM_PROPERTIES`, in that spelling. Texts come as str, times as Timestamp, time to live as
        timedelta, lock token as UUID, numbers as int. A view that cannot tell one raises `FilterError`.
        """
        ...

    def user(self, name: str, /) -> Value:
        """The application property, or `MISSING`.

        Names of properties do not depend on case: `name` comes in lower case (`str.lower`), to be looked up among
        names that the view has made lower-case too.
        """
        ...
