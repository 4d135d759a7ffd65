"""Claims: rights to a part of the namespace, until a time, that a peer has proved.

Resources are paths: `orders` stands for the entity and everything below it (`orders/$deadletterqueue`,
`orders/$management`, a topic's `events/subscriptions/audit`, and for keys of the namespace also other entities, as
`orders/eu`), the empty path for the whole namespace. Case does not matter. The host in an address does not matter
either: a key belongs to one namespace, and a namespace is reached under more names than it knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from twinbus.broker.operations import Right
from twinbus.errors import QuotaExceeded, Unauthorized

CLAIMS_MAX = 1_000
"""On one connection."""
FOR_EVER_MS = 2**62
"""The end of claims that do not end, e.g. of a login with name and key."""

ALL_RIGHTS = frozenset(Right)


def with_implied(rights: frozenset[Right]) -> frozenset[Right]:
    """The rights, and those that come with them: Manage includes Send and Listen."""
    return ALL_RIGHTS if Right.MANAGE in rights else rights


@dataclass(frozen=True, slots=True)
class Claim:
    """The holder has these rights to a resource, and to everything below it, until a time."""

    resource: str
    rights: frozenset[Right]
    until_ms: int
    is_for_one_entity: bool = False
    """It comes from a key of an entity's own: what is below is the entity's, and other entities are not."""

    def covers(self, path: str, now_ms: int) -> bool:
        """Whether the claim is about this path and still holds, whatever the rights in it."""
        wanted = plain_path(path)
        if now_ms >= self.until_ms or not is_within(wanted, self.resource):
            return False
        return not self.is_for_one_entity or owner_of(wanted) == owner_of(self.resource)

    def allows(self, path: str, right: Right, now_ms: int) -> bool:
        return right in with_implied(self.rights) and self.covers(path, now_ms)

    def gives_as_much_as(self, other: Claim) -> bool:
        """Whether it gives, while it lasts, all that another claim to the same resource gave."""
        has_the_rights = with_implied(other.rights) <= with_implied(self.rights)
        return has_the_rights and (other.is_for_one_entity or not self.is_for_one_entity)


def plain_path(path: str) -> str:
    """A path as resources are written: lower-case, without slashes at its ends."""
    return path.strip("/").lower()


def is_within(path: str, resource: str) -> bool:
    """Whether a plain path is the resource or lies below it; `orders2` does not lie below `orders`."""
    return resource in ("", path) or path.startswith(resource + "/")


def resource_path(uri: str) -> str:
    """The resource in an address: `orders` in `sb://host:port/orders`, `host:port/Orders?x=1` and `orders`.

    Without a scheme the first part is a host only if it has a colon, which no entity's name has: were anything else
    taken for a host, a token for the entity `orders` could be read as one for the whole namespace.
    """
    _, separator, rest = uri.partition("://")
    first, _, below = (rest if separator else uri).partition("/")
    path = below if separator or ":" in first else uri
    return plain_path(unquote(path.partition("?")[0].partition("#")[0]))


def owner_of(path: str) -> str:
    """The entity a plain path belongs to: `a/b` for `a/b`, `a/b/$deadletterqueue` and `a/b/subscriptions/c`.

    Names of queues and topics have no part with a `$`, and none that is called `subscriptions`.
    """
    return path.partition("/$")[0].partition("/subscriptions/")[0].removesuffix("/subscriptions")


def missing_right(path: str, right: Right) -> str:
    """The error text for a valid token that lacks a right."""
    return f"the token for {path!r} does not give the right '{right.value}', which is needed here"


class ClaimBook:
    """What one connection has proved so far: by name and key when it came in, by tokens since.

    One claim per resource: a token that is put again takes the place of the one before.
    """

    def __init__(self) -> None:
        self._from_login: Claim | None = None
        self._by_resource: dict[str, Claim] = {}
        self.review_ms: int | None = None
        """When rights may have been lost: ask for each one again then. None: never."""

    def set_login(self, claim: Claim | None) -> None:
        """The claim of a login with name and key."""
        self._from_login = claim

    def add(self, claim: Claim, now_ms: int) -> None:
        """Add what a token proves; raises `QuotaExceeded` if there are too many."""
        before = self._by_resource.get(claim.resource)
        if before is None and len(self._by_resource) >= CLAIMS_MAX:
            self._drop_ended(now_ms)
            if len(self._by_resource) >= CLAIMS_MAX:
                raise QuotaExceeded(f"a connection may hold tokens for at most {CLAIMS_MAX} resources")
        self._by_resource[claim.resource] = claim
        # A token with fewer rights must not keep alive what the one before had allowed.
        is_poorer = before is not None and not claim.gives_as_much_as(before)
        at_ms = now_ms if is_poorer else claim.until_ms
        self.review_ms = at_ms if self.review_ms is None else min(self.review_ms, at_ms)

    def check(self, path: str, right: Right | None, now_ms: int) -> None:
        """Raise `Unauthorized` unless there is this right to a path; None asks for any right at all."""
        if self.has(path, right, now_ms):
            return
        if right is not None and self.has(path, None, now_ms):
            raise Unauthorized(missing_right(path, right))
        needed = "a right" if right is None else f"the right '{right.value}'"
        raise Unauthorized(f"no valid token for {path!r} was put on this connection, and {needed} to it is needed")

    def has(self, path: str, right: Right | None, now_ms: int) -> bool:
        return any(
            claim.covers(path, now_ms) if right is None else claim.allows(path, right, now_ms) for claim in self._all()
        )

    def finish_review(self, now_ms: int) -> None:
        """Every right has been asked for again; wait for the next end."""
        self._drop_ended(now_ms)
        self.review_ms = min((claim.until_ms for claim in self._by_resource.values()), default=None)

    def _all(self) -> Iterator[Claim]:
        if self._from_login is not None:
            yield self._from_login
        yield from self._by_resource.values()

    def _drop_ended(self, now_ms: int) -> None:
        self._by_resource = {name: claim for name, claim in self._by_resource.items() if claim.until_ms > now_ms}
