"""Host names in administration documents: exactly the places that hold them change, and not a byte elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from html import escape
from xml.etree.ElementTree import Element, fromstring

from hypothesis import given
from hypothesis import strategies as st

from twinbus.errors import ArgumentError
from twinbus.proxy.administration.admin_documents import Hosts, RequestDocument, for_application, keys_in
from twinbus.proxy.administration.atom_places import HIDDEN_KEY, Address, find_places, replace

ATOM = "http://www.w3.org/2005/Atom"
SB = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
HOSTS = Hosts(Address("https", "proxy.local:5672"), "contoso.servicebus.windows.net")
AT_PROXY, AT_PRIMARY = "proxy.local:5672", "contoso.servicebus.windows.net"

texts = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffe\uffff"), max_size=12)
names = st.text("abcXYZ019-_.~", min_size=1, max_size=8).filter(lambda name: set(name) != {"."})
hosts = st.sampled_from([AT_PROXY, AT_PRIMARY, "proxy.local", "other.example:1", "proxy.local.example"])
schemes = st.sampled_from(["sb", "https", "amqps", "mailto"])
addresses = st.builds(lambda scheme, host, name: f"{scheme}://{host}/{name}", schemes, hosts, names)
values = st.one_of(addresses, texts)


@st.composite
def written(draw: st.DrawFn, text: str) -> str:
    """A text in one of the ways in which XML can hold it."""
    match draw(st.integers(0, 3)):
        case 0 if "]]>" not in text:
            return f"<![CDATA[{text}]]>"
        case 1:
            return "".join([f"&#{ord(letter)};" for letter in text])
        case 2:
            return f"{escape(text)}<!-- sb://{AT_PRIMARY}/ -->"
        case _:
            return escape(text)


@st.composite
def documents(draw: st.DrawFn, *, plainly: bool = False) -> bytes:
    """Entries of any look, with addresses where they belong and where they do not."""

    def content(strategy: st.SearchStrategy[str]) -> str:
        text = draw(strategy)
        return escape(text) if plainly else draw(written(text))

    def attribute(strategy: st.SearchStrategy[str]) -> str:
        mark = draw(st.sampled_from("\"'"))
        return mark + escape(draw(strategy)) + mark

    a, s = draw(st.sampled_from([("", "s:"), ("a:", ""), ("a:", "s:")]))
    declared = f'xmlns{":a" if a else ""}="{ATOM}" xmlns{":s" if s else ""}="{SB}"'
    pieces: dict[str, Callable[[], str]] = {
        "id": lambda: f"<{a}id>{content(values)}</{a}id>",
        "link": lambda: f"<{a}link title={attribute(values)} href = {attribute(values)}\n/>",
        "title": lambda: f"<{a}title href={attribute(values)}>{content(values)}</{a}title>",
        "other id": lambda: f"<{s}id>{content(values)}</{s}id>",
        "ForwardTo": lambda: f"<{s}ForwardTo>{content(st.one_of(addresses, names))}</{s}ForwardTo>",
        "base": lambda: f"<{a}x xml:base={attribute(values)}/>",
        "metadata": lambda: f"<{s}UserMetadata>{content(values)}</{s}UserMetadata>",
        "comment": lambda: f"<!-- <id>sb://{AT_PROXY}/</id> -->",
        "space": lambda: "\n  ",
        "rule": lambda: (
            f"<{s}AuthorizationRule><{s}KeyName>{content(names)}</{s}KeyName>"
            f"<{s}PrimaryKey>{content(names.map('key-'.__add__))}</{s}PrimaryKey></{s}AuthorizationRule>"
        ),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(pieces)), max_size=8))
    head = draw(st.sampled_from(["", '<?xml version="1.0" encoding="utf-8"?>', "\ufeff"]))
    return f"{head}<{a}entry {declared}>{''.join([pieces[kind]() for kind in chosen])}</{a}entry>".encode()


def is_place(element: Element) -> bool:
    return element.tag == f"{{{ATOM}}}id" or element.tag.endswith("}ForwardTo")


def expected(text: str, there: str, host: str, *, is_exact: bool) -> str:
    """What becomes of a text, without the code under test; a host without its port is the proxy's, too."""
    scheme, separator, rest = text.partition("://")
    place, slash, path = rest.partition("/")
    is_there = place == there or (not is_exact and place == there.partition(":")[0])
    return f"{scheme}://{host}{slash}{path}" if separator and scheme != "mailto" and is_there else text


def compare(before: bytes, after: bytes, there: str, host: str, *, is_exact: bool, hides: bool) -> None:
    for old, new in zip(fromstring(before).iter(), fromstring(after).iter(), strict=True):
        assert (old.tag, old.tail) == (new.tag, new.tail)
        for name, value in old.attrib.items():
            is_address = name.endswith("}base") or (old.tag == f"{{{ATOM}}}link" and name == "href")
            changed = expected(value, there, host, is_exact=is_exact)
            assert new.attrib[name] == (changed if is_address else value)
        if hides and old.tag.endswith("Key") and old.text:
            assert new.text == HIDDEN_KEY
        elif is_place(old):
            assert (new.text or "") == expected(old.text or "", there, host, is_exact=is_exact)
        else:
            assert old.text == new.text


@given(documents())
def test_an_application_gets_the_document_with_its_own_host_names_and_without_keys(document: bytes) -> None:
    compare(document, for_application(document, HOSTS), AT_PRIMARY, AT_PROXY, is_exact=True, hides=True)


@given(documents())
def test_the_primary_gets_the_document_with_its_own_host_names(document: bytes) -> None:
    said = RequestDocument(document, HOSTS).written({})
    compare(document, said, AT_PROXY, AT_PRIMARY, is_exact=False, hides=False)


@given(documents(plainly=True))
def test_there_and_back_again_every_byte_is_what_it_was(document: bytes) -> None:
    at_primary = document.replace(AT_PROXY.encode(), AT_PRIMARY.encode()).replace(b"proxy.local/", b"else.where/")
    shown = for_application(at_primary, HOSTS)
    # rules of the same name and nothing else get each other's keys
    names = [key.rule for key in find_places(at_primary).keys]
    if len(names) == len(set(names)):
        assert RequestDocument(shown, HOSTS).written(keys_in(at_primary)) == at_primary


@given(documents())
def test_where_nothing_is_to_be_changed_nothing_is(document: bytes) -> None:
    elsewhere = Hosts(Address("https", "a.example"), "b.example")
    assert RequestDocument(document, elsewhere).written({}) == document
    places = find_places(document)
    found = [*places.addresses, *[place for _, place in places.targets], *[key.place for key in places.keys]]
    assert replace(document, [(place, place.text) for place in found]) == document


@given(st.one_of(st.binary(max_size=60), texts.map(lambda text: f"<a>{text}</a>".encode())))
def test_whatever_comes_is_translated_or_refused(document: bytes) -> None:
    for translate in (for_application, RequestDocument):
        with suppress(ArgumentError):
            translate(document, HOSTS)
