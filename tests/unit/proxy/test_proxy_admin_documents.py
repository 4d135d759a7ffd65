"""Administration documents between an application and the primary: which bytes change, and which never do."""

from __future__ import annotations

import pytest

from twinbus.errors import ArgumentError
from twinbus.proxy.administration.admin_documents import (
    ForwardTarget,
    Hosts,
    RequestDocument,
    checked_path,
    for_application,
    keys_in,
    primary_path,
)
from twinbus.proxy.administration.atom_places import HIDDEN_KEY, Address

ATOM = "http://www.w3.org/2005/Atom"
SB = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
PRIMARY = "contoso.servicebus.windows.net"
HOSTS = Hosts(Address("https", "proxy.local:5672"), PRIMARY)
MAIN, DEAD = "ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"


def entry(description: str, before: str = "") -> bytes:
    return (
        f'<?xml version="1.0" encoding="utf-8"?><entry xmlns="{ATOM}">{before}<content type="application/xml">'
        f'<QueueDescription xmlns="{SB}">{description}</QueueDescription></content></entry>'
    ).encode()


def sent(description: str, keys: dict[tuple[str, str], str] | None = None) -> str:
    """What the primary gets inside of the description."""
    return inside(RequestDocument(entry(description), HOSTS).written(keys or {}))


def inside(document: bytes) -> str:
    return document.decode().partition(f'xmlns="{SB}">')[2].partition("</QueueDescription>")[0]


# --- requests ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sb://proxy.local:5672/x", f"sb://{PRIMARY}/x"),
        ("sb://proxy.local/x", f"sb://{PRIMARY}/x"),
        ("SB://Proxy.Local:5672/X/y", f"SB://{PRIMARY}/X/y"),
        ("amqps://proxy.local:5672/x", f"amqps://{PRIMARY}/x"),
        ("amqp://proxy.local:5672/x", f"amqp://{PRIMARY}/x"),
        ("https://proxy.local:5672/x", f"https://{PRIMARY}/x"),
        ("http://proxy.local:5672/x", f"https://{PRIMARY}/x"),
        (" sb://proxy.local:5672/x\n", f" sb://{PRIMARY}/x\n"),
        ("sb://proxy.local:5672/a%2Fb", f"sb://{PRIMARY}/a%2Fb"),
        ("sb://proxy.local:5672/a&amp;b", f"sb://{PRIMARY}/a&amp;b"),
        ("sb://proxy.local:5672/&#97;", f"sb://{PRIMARY}/&#97;"),
        ("&#115;b://proxy.local:5672/x", f"sb://{PRIMARY}/x"),
        ("<![CDATA[sb://proxy.local:5672/x]]>", f"sb://{PRIMARY}/x"),
        # what is elsewhere stays, and so does what is no address
        ("x", "x"),
        ("", ""),
        (f"sb://{PRIMARY}/x", f"sb://{PRIMARY}/x"),
        ("sb://proxy.local:9999/x", "sb://proxy.local:9999/x"),
        ("sb://proxy.local.evil.example/x", "sb://proxy.local.evil.example/x"),
        ("ftp://proxy.local:5672/x", "ftp://proxy.local:5672/x"),
        ("sb://proxy.local:port/x", "sb://proxy.local:port/x"),
        ("sb://[proxy.local/x", "sb://[proxy.local/x"),
    ],
)
def test_where_messages_are_forwarded_to_is_an_entity_of_the_primary(given: str, expected: str) -> None:
    assert sent(f"<ForwardTo>{given}</ForwardTo>") == f"<ForwardTo>{expected}</ForwardTo>"


def test_each_target_has_its_path_its_address_at_the_primary_and_its_header() -> None:
    document = RequestDocument(
        entry(
            "<ForwardTo>sb://proxy.local:5672/Orders/eu</ForwardTo>"
            "<ForwardDeadLetteredMessagesTo>Lost</ForwardDeadLetteredMessagesTo>"
        ),
        HOSTS,
    )
    assert document.targets == [
        ForwardTarget(MAIN, "orders/eu", f"sb://{PRIMARY}/Orders/eu"),
        ForwardTarget(DEAD, "lost", f"sb://{PRIMARY}/Lost"),
    ]


def test_an_empty_target_is_none() -> None:
    assert (
        RequestDocument(
            entry("<ForwardTo/><ForwardDeadLetteredMessagesTo> </ForwardDeadLetteredMessagesTo>"), HOSTS
        ).targets
        == []
    )


def test_other_elements_keep_the_name_of_the_proxy() -> None:
    description = "<UserMetadata>see sb://proxy.local:5672/x, https://proxy.local:5672</UserMetadata>"
    assert sent(description) == description


def test_prefixes_do_not_matter() -> None:
    body = (
        f'<ns0:entry xmlns:ns0="{ATOM}" xmlns:s="{SB}"><ns0:content><s:QueueDescription>'
        "<s:ForwardTo>sb://proxy.local:5672/x</s:ForwardTo></s:QueueDescription></ns0:content></ns0:entry>"
    ).encode()
    assert RequestDocument(body, HOSTS).written({}) == body.replace(b"proxy.local:5672", PRIMARY.encode())


@pytest.mark.parametrize(
    "body",
    [
        b"hello",
        b"<entry>",
        b"<a></b>",
        b'<!DOCTYPE a [<!ENTITY x "sb://y">]><a>&x;</a>',
        "<?xml version='1.0' encoding='utf-16'?><a/>".encode("utf-16"),
        b"<?xml version='1.0' encoding='nonsense'?><a/>",
        b"<a>\xff</a>",
        b"<a>" * 100 + b"</a>" * 100,
        entry("<ForwardTo>or<b>ders</b></ForwardTo>"),
    ],
)
def test_what_another_reader_could_read_otherwise_is_refused(body: bytes) -> None:
    with pytest.raises(ArgumentError):
        RequestDocument(body, HOSTS)


@pytest.mark.parametrize(
    "target", ["a/../b", "sb://proxy.local:5672/a/../b", "sb://x/a/%2e%2e/b", "a\\b", "a//b", "a/%252e"]
)
def test_a_target_that_could_be_another_entity_is_refused(target: str) -> None:
    with pytest.raises(ArgumentError, match="cannot be the path of an entity"):
        RequestDocument(entry(f"<ForwardTo>{target}</ForwardTo>"), HOSTS)


# --- answers ---


def test_ids_links_bases_and_targets_name_the_proxy() -> None:
    base = f"https://{PRIMARY}/"
    body = (
        f"<feed xmlns='{ATOM}' xml:base='{base}'><id>{base}$Resources/queues?api-version=2021-05</id>"
        f'<link href="{base}$Resources/queues?$skip=100&amp;$top=100" rel="next"/>'
        f"<entry><id>{base}orders</id><title>https://{PRIMARY}/</title><author><name>contoso</name></author>"
        f"<link rel='self' title='href=\"x\"' href = 'orders?api-version=2021-05'/>"
        f"<content><QueueDescription xmlns='{SB}'><ForwardTo>sb://{PRIMARY}:5671/x</ForwardTo>"
        f"<UserMetadata>{base}</UserMetadata></QueueDescription></content></entry></feed>"
    )
    mine = "https://proxy.local:5672/"
    expected = (
        body.replace(f"xml:base='{base}", f"xml:base='{mine}")
        .replace(f"<id>{base}", f"<id>{mine}")
        .replace(f'<link href="{base}', f'<link href="{mine}')
        .replace(f"sb://{PRIMARY}:5671/x", "sb://proxy.local:5672/x")
    )
    assert for_application(body.encode(), HOSTS).decode() == expected


def test_who_came_without_tls_is_led_on_without_it() -> None:
    hosts = Hosts(Address("http", "127.0.0.1:5672"), "127.0.0.1:5673")
    body = entry("<ForwardTo>sb://127.0.0.1:5673/x</ForwardTo>", "<id>https://127.0.0.1:5673/orders</id>")
    said = for_application(body, hosts).decode()
    assert "<id>http://127.0.0.1:5672/orders</id>" in said
    assert "<ForwardTo>sb://127.0.0.1:5672/x</ForwardTo>" in said


def test_another_port_of_the_same_host_is_another_namespace() -> None:
    hosts = Hosts(Address("https", "127.0.0.1:5672"), "127.0.0.1:5673")
    body = entry("<ForwardTo>sb://127.0.0.1:5674/x</ForwardTo>", "<id>https://127.0.0.1:5671/orders</id>")
    assert for_application(body, hosts) == body


def test_hosts_may_be_addresses_of_version_6() -> None:
    hosts = Hosts(Address("https", "[::1]:5672"), "[fd00::1]:5673")
    body = entry("<ForwardTo>sb://[FD00::1]:5673/x</ForwardTo>")
    assert inside(for_application(body, hosts)) == "<ForwardTo>sb://[::1]:5672/x</ForwardTo>"


# --- keys ---

RULES = (
    "<AuthorizationRules><AuthorizationRule><KeyName>app</KeyName><PrimaryKey>{app_1}</PrimaryKey>"
    "<SecondaryKey>{app_2}</SecondaryKey></AuthorizationRule><AuthorizationRule><PrimaryKey>{ops_1}</PrimaryKey>"
    "<KeyName>ops</KeyName></AuthorizationRule></AuthorizationRules>"
)
KEYS = {"app_1": "a1==", "app_2": "a2==", "ops_1": "o1=="}
SHOWN = RULES.format(**dict.fromkeys(KEYS, HIDDEN_KEY))


def test_keys_of_the_primary_do_not_leave_the_proxy() -> None:
    assert inside(for_application(entry(RULES.format(**KEYS)), HOSTS)) == SHOWN


@pytest.mark.parametrize(
    "key",
    ["<![CDATA[a1==]]>", "<b>a1==</b>", "a1<!-- -->==", f'<id xmlns="{ATOM}">https://{PRIMARY}/a1</id>'],
)
def test_keys_are_hidden_however_they_are_written(key: str) -> None:
    said = inside(for_application(entry(f"<PrimaryKey>{key}</PrimaryKey>"), HOSTS))
    assert said == f"<PrimaryKey>{HIDDEN_KEY}</PrimaryKey>"


def test_a_description_that_is_sent_back_has_the_keys_that_the_primary_has() -> None:
    known = keys_in(entry(RULES.format(**KEYS)))
    assert RequestDocument(entry(SHOWN), HOSTS).has_hidden_keys
    assert sent(SHOWN, known) == RULES.format(**KEYS)


def test_keys_that_an_application_chooses_go_to_the_primary() -> None:
    chosen = RULES.format(app_1="new", app_2=HIDDEN_KEY, ops_1="new")
    assert sent(chosen, keys_in(entry(RULES.format(**KEYS)))) == RULES.format(app_1="new", app_2="a2==", ops_1="new")


def test_the_text_that_stands_for_a_key_never_becomes_one() -> None:
    with pytest.raises(ArgumentError, match="the rule 'app' of this entity has no PrimaryKey yet"):
        sent(SHOWN)


# --- paths ---


@pytest.mark.parametrize(
    "path", ["/orders", "/a/b/", "/txt/.-_123", "/$Resources/queues", "/$namespaceinfo", "/", "/caf%C3%A9"]
)
def test_paths_of_entities_go_on(path: str) -> None:
    assert f"/{primary_path(checked_path(path))}" == (path.rstrip("/") or "/")


def test_a_path_is_sent_on_as_it_was_authorized() -> None:
    assert primary_path(checked_path("/a%2Fb%20c%3Fd")) == "a/b%20c%3Fd"


@pytest.mark.parametrize(
    "path",
    ["/a/../b", "/a/%2e%2e/b", "/a/./b", "/a\\..\\b", "/a%5c..%5cb", "/a/%252e%252e/b", "/a//b", "/a%00", "/a%0d%0ab"],
)
def test_a_path_that_could_be_another_one_is_refused(path: str) -> None:
    with pytest.raises(ArgumentError, match="cannot be the path of an entity"):
        checked_path(path)
