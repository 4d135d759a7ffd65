"""Administration documents on their way between an application and the primary: host names are translated both ways.

    application           proxy             primary
    sb://proxy:5672/x  ->  translate  ->  sb://contoso.servicebus.windows.net/x      ForwardTo in a request
    https://proxy:5672/...  <-  translate  <-  https://contoso.servicebus.windows.net/...     ids, links, ForwardTo

Keys of the primary's entities do not leave the proxy: a fixed text stands for them. A client that gets a description,
changes something and sends it back sends that text, and the key that the primary has takes its place again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from twinbus.broker.admin.fields import TARGET_HEADERS, is_at
from twinbus.broker.admin.routes import ResourcePath, parse_resource_path
from twinbus.broker.auth.claims import resource_path
from twinbus.errors import ArgumentError
from twinbus.proxy.administration.atom_places import HIDDEN_KEY, Address, Places, TextPlace, find_places, moved, replace
from twinbus.proxy.entity_paths import check_path

HTTP_SCHEMES = frozenset({"http", "https"})
SCHEMES = HTTP_SCHEMES | {"sb", "amqp", "amqps"}
DEFAULT_PORTS = frozenset({443, 5671})
"""Of a namespace whose address has none."""

KeyName = tuple[str, str]
"""Of an authorization rule, and of the element that holds one of its keys."""


class Hosts(NamedTuple):
    """The host names of the same namespace on both sides, each with its port if it has one."""

    application: Address
    """`https` and the host to which the application sent its request."""
    primary: str
    """To which the proxy sends its own."""

    def to_primary(self, address: Address) -> Address | None:
        """None: it is not an address of the proxy."""
        if not _is_at(address, self.application.authority):
            return None
        return Address("https" if address.scheme.lower() in HTTP_SCHEMES else address.scheme, self.primary)

    def to_application(self, address: Address) -> Address | None:
        if not _is_at(address, self.primary):
            return None
        is_http = address.scheme.lower() in HTTP_SCHEMES
        return Address(self.application.scheme if is_http else address.scheme, self.application.authority)


def _is_at(address: Address, host: str) -> bool:
    if address.scheme.lower() not in SCHEMES:
        return False
    try:
        port = urlsplit(str(address)).port
        if port in DEFAULT_PORTS and urlsplit(f"//{host}").port is None:
            host = f"{host}:{port}"
        return is_at(str(address), host)
    except ValueError:
        return False


class ForwardTarget(NamedTuple):
    """An entity to which messages are forwarded."""

    header: str
    """That holds the token for it."""
    path: str
    address: str
    """At the primary."""


class RequestDocument:
    """The description in a request; raises `ArgumentError` if it is not XML, or its targets are ambiguous."""

    def __init__(self, body: bytes, hosts: Hosts) -> None:
        self._body = body
        self._places: Places = find_places(body)
        found = [*self._places.addresses, *[place for _, place in self._places.targets]]
        moves = [(place, moved(_inner(place), hosts.to_primary)) for place in found]
        self._changes = [(place, text) for place, text in moves if text is not None]
        changed = dict(self._changes)
        self.targets = [
            _target(element, changed.get(place, place.text).strip(), hosts.primary)
            for element, place in self._places.targets
        ]

    @property
    def has_hidden_keys(self) -> bool:
        return any(key.place.text.strip() == HIDDEN_KEY for key in self._places.keys)

    def written(self, keys: Mapping[KeyName, str]) -> bytes:
        """As the primary is to get it, with the keys that it has; raises `ArgumentError` if it does not have them."""
        restored: list[tuple[TextPlace, str]] = []
        for rule, element, place in self._places.keys:
            if place.text.strip() == HIDDEN_KEY:
                key = keys.get((rule, element))
                if key is None:
                    raise ArgumentError(
                        f"the rule {rule!r:.80} of this entity has no {element} yet: the proxy shows no keys of other "
                        "entities, so give the key itself, or leave it out"
                    )
                restored.append((place, key))
        return replace(self._body, [*self._changes, *restored])


def _inner(place: TextPlace) -> TextPlace:
    """Without what the Java client puts before it: it takes an address that begins with sb: for a path."""
    at = place.text.find("sb://")
    return place if at < 1 or not place.text.lstrip().startswith("http") else place._replace(text=place.text[at:])


def _target(element: str, text: str, primary: str) -> ForwardTarget:
    path = resource_path(text)
    check_path(path)
    address = text if "://" in text else f"sb://{primary}/{quote(text.strip('/'), safe='/~')}"
    return ForwardTarget(TARGET_HEADERS[element], path, address)


def keys_in(body: bytes) -> dict[KeyName, str]:
    """The keys of an entity's rules, from its description; raises `ArgumentError` if that is not XML."""
    return {(rule, element): place.text for rule, element, place in find_places(body).keys}


def for_application(body: bytes, hosts: Hosts) -> bytes:
    """A document of the primary as the application gets it; raises `ArgumentError` if it is not XML."""
    places = find_places(body)
    found = [*places.addresses, *[place for _, place in places.targets]]
    changes = [(place, text) for place in found if (text := moved(place, hosts.to_application)) is not None]
    return replace(body, [*changes, *[(key.place, HIDDEN_KEY) for key in places.keys]])


def checked_path(raw_path: str) -> ResourcePath:
    """The path of a request; raises `ArgumentError` as `check_path` does."""
    path = parse_resource_path(raw_path)
    check_path(path.path)
    return path


def primary_path(path: ResourcePath) -> str:
    """The path as it is sent to the primary: encoded once, so that it means there what was authorized here."""
    return quote(path.path, safe="/$~")
