"""Paths and queries of administration requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple, assert_never
from urllib.parse import unquote

from twinbus.errors import ArgumentError

PAGE_MAX = 100
SKIP_MAX = 1_000_000
_BELOW_A_TOPIC = re.compile(
    r"(?P<topic>[^/].*?)/subscriptions(/(?P<subscription>[^/]+)(/rules(/(?P<rule>[^/]+))?)?)?",
    re.IGNORECASE | re.DOTALL,
)
_WHOLE = re.compile(r"[+-]?\d{1,12}", re.ASCII)


class Resource(Enum):
    NAMESPACE = auto()
    QUEUES = auto()
    TOPICS = auto()
    ENTITY = auto()
    """A queue or a topic."""
    SUBSCRIPTIONS = auto()
    SUBSCRIPTION = auto()
    RULES = auto()
    RULE = auto()
    NOTHING = auto()
    """An unknown address that begins with `$`."""


class ResourcePath(NamedTuple):
    resource: Resource
    path: str
    """Decoded, without slashes at its ends."""
    topic: str = ""
    subscription: str = ""
    rule: str = ""

    @property
    def entity(self) -> str:
        """The entity of the request, in lower case; empty: the namespace."""
        match self.resource:
            case Resource.ENTITY:
                return self.path.lower()
            case Resource.SUBSCRIPTIONS:
                return self.topic.lower()
            case Resource.SUBSCRIPTION | Resource.RULES | Resource.RULE:
                return self.subscription_path.lower()
            case Resource.NAMESPACE | Resource.QUEUES | Resource.TOPICS | Resource.NOTHING:
                return ""
            case _:
                assert_never(self.resource)

    @property
    def subscription_path(self) -> str:
        return f"{self.topic}/Subscriptions/{self.subscription}"


class Page(NamedTuple):
    skip: int
    top: int

    def next_query(self, has_more: bool) -> str | None:
        """What leads to the next page; None: this is the last one."""
        return f"$skip={self.skip + self.top}&$top={self.top}&" if has_more else None


_OWN_ADDRESSES = {
    "$namespaceinfo": Resource.NAMESPACE,
    "$resources/queues": Resource.QUEUES,
    "$resources/topics": Resource.TOPICS,
}


def parse_resource_path(raw_path: str) -> ResourcePath:
    """Parse the path of a request; case does not matter, and entity names may have slashes, encoded or not."""
    path = unquote(raw_path, errors="replace").strip("/")
    resource = _OWN_ADDRESSES.get(path.lower())
    if resource is not None:
        return ResourcePath(resource, path)
    if path.startswith("$"):
        return ResourcePath(Resource.NOTHING, path)
    below = _BELOW_A_TOPIC.fullmatch(path)
    return ResourcePath(Resource.ENTITY, path) if below is None else _place_below(path, **below.groupdict(default=""))


def _place_below(path: str, topic: str, subscription: str, rule: str) -> ResourcePath:
    """A path below a topic. No queue or topic has such a name."""
    if rule:
        return ResourcePath(Resource.RULE, path, topic, subscription, rule)
    if path.lower().endswith("/rules"):
        return ResourcePath(Resource.RULES, path, topic, subscription)
    return ResourcePath(Resource.SUBSCRIPTION if subscription else Resource.SUBSCRIPTIONS, path, topic, subscription)


def page_of(query: Mapping[str, str]) -> Page:
    """The requested page of a list; raises `ArgumentError` for invalid numbers."""
    problems: list[str] = []
    skip = _number(query, "$skip", 0, 0, problems)
    top = _number(query, "$top", PAGE_MAX, 1, problems)
    if problems:
        raise ArgumentError("; ".join(problems))
    return Page(min(skip, SKIP_MAX), min(top, PAGE_MAX))


def _number(query: Mapping[str, str], name: str, default: int, least: int, problems: list[str]) -> int:
    text = query.get(name, "").strip()
    if not text:
        return default
    if _WHOLE.fullmatch(text) and int(text) >= least:
        return int(text)
    problems.append(f"{name} must be a whole number of at least {least}, got {text[:60]!r}")
    return default
