"""Places in ATOM documents: addresses of the namespace, and keys. Everything else in a document keeps its bytes.

A document is not read and written anew: official clients depend on prefixes, on the order of elements and on where a
namespace is declared. A parser finds the places, and only their bytes are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple
from xml.parsers import expat

from twinbus.broker.admin.fields import TARGET_HEADERS
from twinbus.broker.admin.xml_text import ATOM
from twinbus.errors import ArgumentError

HIDDEN_KEY = "hidden-by-twinbus-proxy"
"""Stands for a key of the primary's. A client that sends it back means the key as it is."""

_BASE = "http://www.w3.org/XML/1998/namespace base"
_ADDRESS = re.compile(r"(\s*)([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\s]*)")
_ATTRIBUTE = re.compile(rb"\s([^\s=/>]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_KEYS = frozenset({"PrimaryKey", "SecondaryKey"})
_DEPTH_MAX = 64


class TextPlace(NamedTuple):
    """Bytes of a document, and the text they stand for."""

    start: int
    end: int
    text: str


class KeyPlace(NamedTuple):
    """A key of an authorization rule."""

    rule: str
    """The rule's name."""
    element: str
    place: TextPlace


@dataclass(slots=True)
class Places:
    """All places of a document that may have to change."""

    addresses: list[TextPlace] = field(default_factory=list)
    """Ids, links and base addresses; some may not be of the namespace."""
    targets: list[tuple[str, TextPlace]] = field(default_factory=list)
    """Where messages are forwarded to: the element, and an address or the name of an entity."""
    keys: list[KeyPlace] = field(default_factory=list)


def find_places(document: bytes) -> Places:
    """Raises `ArgumentError` if it is not XML, or could mean something else to another parser."""
    if b"\0" in document:
        raise ArgumentError("the body is not a well-formed XML document in UTF-8")
    scan = _Scan(document)
    try:
        scan.parser.Parse(document, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise ArgumentError(f"the body is not a well-formed XML document: {error}") from None
    return scan.finish()


class Address(NamedTuple):
    """The beginning of an address: `sb` and `host:port` in `sb://host:port/orders`."""

    scheme: str
    authority: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


def moved(place: TextPlace, move: Callable[[Address], Address | None]) -> str | None:
    """The text of a place with another address at its beginning; None: it has none, or `move` leaves it alone."""
    found = _ADDRESS.match(place.text)
    other = None if found is None else move(Address(found[2], found[3]))
    return None if found is None or other is None else f"{found[1]}{other}{place.text[found.end() :]}"


def replace(document: bytes, changes: Iterable[tuple[TextPlace, str]]) -> bytes:
    """The document with other texts at some places. Where only the beginning of an address differs, the rest stays."""
    parts: list[bytes] = []
    done = 0
    for place, text in sorted(changes):
        if place.start < done:  # inside of what was replaced
            continue
        parts += [document[done : place.start], _written(document[place.start : place.end], place.text, text)]
        done = place.end
    return b"".join([*parts, document[done:]])


def _written(raw: bytes, before: str, after: str) -> bytes:
    """The bytes for a text. Raw bytes after the beginning of an address are kept, however they are escaped."""
    if before == after:
        return raw
    old, new = _ADDRESS.match(before), _ADDRESS.match(after)
    if old and new and before[old.end() :] == after[new.end() :] and raw.startswith(old[0].encode()):
        return _escaped(new[0]) + raw[len(old[0].encode()) :]
    return _escaped(after)


def _escaped(text: str) -> bytes:
    return escape(text).encode("ascii", "xmlcharrefreplace")


@dataclass(slots=True)
class _Element:
    name: str
    """Without its XML namespace."""
    is_atom: bool
    start: int
    attributes: dict[str, str]
    content_start: int | None = None
    """After the start tag; known when anything follows."""
    text: list[str] = field(default_factory=list)
    has_children: bool = False


class _Scan:
    """One pass over a document."""

    def __init__(self, document: bytes) -> None:
        self.places = Places()
        self._document = document
        self._open: list[_Element] = []
        self._rule_keys: list[tuple[str, TextPlace]] = []
        self._rule_name = ""
        self.parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._take_text
        parser.StartDoctypeDeclHandler = self._refuse_types
        parser.DefaultHandler = lambda _: self._reach_content()  # comments, and the marks around character data

    def finish(self) -> Places:
        self._end_of_rule("AuthorizationRule", TextPlace(0, 0, ""))  # keys elsewhere are keys, too
        return self.places

    def _refuse_types(self, *_: object) -> None:
        raise ArgumentError("the document must not have a DOCTYPE")

    def _reach_content(self) -> None:
        if self._open and self._open[-1].content_start is None:
            self._open[-1].content_start = self.parser.CurrentByteIndex

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._reach_content()
        if len(self._open) >= _DEPTH_MAX:
            raise ArgumentError(f"the document must not be nested deeper than {_DEPTH_MAX} elements")
        if self._open:
            self._open[-1].has_children = True
        space, _, local = name.rpartition(" ")
        self._open.append(_Element(local, space == ATOM, self.parser.CurrentByteIndex, attributes))

    def _take_text(self, text: str) -> None:
        self._reach_content()
        self._open[-1].text.append(text)

    def _end(self, _: str) -> None:
        self._reach_content()
        element = self._open.pop()
        assert element.content_start is not None
        content = TextPlace(element.content_start, self.parser.CurrentByteIndex, "".join(element.text))
        if element.is_atom and element.name == "id":
            self.places.addresses.append(content)
        if element.is_atom and element.name == "link":
            self._add_attribute(element, "href", b"href")
        self._add_attribute(element, _BASE, b"xml:base")
        if element.name in TARGET_HEADERS and element.has_children:
            raise ArgumentError(f"{element.name} must hold text only")
        if element.name in TARGET_HEADERS and content.text.strip():
            self.places.targets.append((element.name, content))
        self._end_of_rule(element.name, content)

    def _end_of_rule(self, name: str, content: TextPlace) -> None:
        """Keys come before or after the name of their rule."""
        if name in _KEYS and content.start < content.end:
            self._rule_keys.append((name, content))
        elif name == "KeyName":
            self._rule_name = content.text
        elif name == "AuthorizationRule":
            self.places.keys += [KeyPlace(self._rule_name, *key) for key in self._rule_keys]
            self._rule_keys, self._rule_name = [], ""

    def _add_attribute(self, element: _Element, name: str, raw_name: bytes) -> None:
        text = element.attributes.get(name)
        if text is None:
            return
        assert element.content_start is not None
        for found in _ATTRIBUTE.finditer(self._document, element.start, element.content_start):
            if found[1] == raw_name:
                group = 2 if found[2] is not None else 3
                self.places.addresses.append(TextPlace(found.start(group), found.end(group), text))
