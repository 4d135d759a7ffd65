"""Reading and writing XML.

Reading has limits, and refuses declarations of types and entities before anything is parsed, so nothing is ever
expanded. Writing is done by hand, because one official client depends on where namespaces are declared and on their
prefixes.
"""

from __future__ import annotations

import html
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from twinbus.broker.entities.settings import UNPRINTABLE
from twinbus.errors import ArgumentError

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"

DEPTH_MAX = 16
ELEMENTS_MAX = 2_000
_DOCTYPE = b"<!DOCTYPE"


class _BoundedTreeBuilder:
    """Builds a tree as long as the document keeps its limits."""

    def __init__(self) -> None:
        self._builder = TreeBuilder()
        self._depth = self._count = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._count += 1
        if self._depth > DEPTH_MAX:
            raise ArgumentError(f"the document must not be nested deeper than {DEPTH_MAX} elements")
        if self._count > ELEMENTS_MAX:
            raise ArgumentError(f"the document must not have more than {ELEMENTS_MAX} elements")
        self._builder.start(tag, attributes)

    def end(self, tag: str) -> None:
        self._depth -= 1
        self._builder.end(tag)

    def data(self, text: str) -> None:
        self._builder.data(text)

    def close(self) -> Element:
        return self._builder.close()


def read_document(body: bytes) -> Element:
    """The root of a document; raises `ArgumentError` if it is invalid or exceeds the limits."""
    if b"\0" in body:
        raise ArgumentError("the body is not a well-formed XML document in UTF-8")
    if _DOCTYPE in body:
        # All remaining encodings write it like this. The parser itself would expand its entities.
        raise ArgumentError("the document must not have a DOCTYPE")
    parser = XMLParser(target=_BoundedTreeBuilder())  # noqa: S314
    try:
        parser.feed(body)
        root = parser.close()
    except (ParseError, ValueError, LookupError, AssertionError) as error:
        raise ArgumentError(f"the body is not a well-formed XML document: {error}") from None
    if not isinstance(root, Element):
        raise ArgumentError("the body is not an XML document")
    return root


def tag(name: str, *content: str, **attributes: str) -> str:
    """An element with this content; `xmlns__i` stands for `xmlns:i`."""
    head = "".join(f' {key.replace("__", ":")}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<{name}{head}>{''.join(content)}</{name}>" if content else f"<{name}{head}/>"


def plain(value: str) -> str:
    """Escaped text. Characters that XML cannot carry become question marks; a bare return would be lost in reading."""
    return html.escape(UNPRINTABLE.sub("?", value), quote=False).replace("\r", "&#13;")


def document(root: str) -> bytes:
    return f'<?xml version="1.0" encoding="utf-8"?>{root}'.encode()
