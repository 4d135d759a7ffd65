"""The documents of the administration, by the rules of both official clients, and there and back again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit
from xml.etree.ElementTree import Element, fromstring

import pytest
from azure.servicebus.management._generated.models import QueueDescriptionEntry, QueueDescriptionFeed
from hypothesis import given, reject
from hypothesis import strategies as st

from twinbus.broker.admin import settings_documents
from twinbus.broker.admin.documents import (
    DocumentContext,
    error_document,
    namespace_entry,
    queue_entry,
    queue_feed,
    topic_feed,
)
from twinbus.broker.admin.settings_documents import QUEUE, ValidationContext
from twinbus.broker.admin.xml_text import plain, tag
from twinbus.broker.core.replies import QueueDescription
from twinbus.broker.entities.settings import (
    DELIVERY_COUNT_LIMIT,
    RIGHTS,
    SIZE_MB_MAX,
    AuthorizationRule,
    QueueSettings,
    QueueStatus,
    TopicSettings,
)
from twinbus.errors import ArgumentError
from twinbus.units import (
    INFINITE,
    iso_duration,
    iso_duration_or_infinite,
    parse_iso_duration,
    parse_iso_duration_or_infinite,
    parse_time_ms,
    utc_time_ms,
)

ATOM = "{http://www.w3.org/2005/Atom}"
SB = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
CONTEXT = DocumentContext("contoso", "https://127.0.0.1:5672", "2021-05")
VALIDATION_CONTEXT = ValidationContext(
    now_ms=1_000, message_bytes_max=256 * 1024, new_key=lambda: "new-key", host="contoso:5671"
)

JS_NEEDS = re.findall(
    r"\w+",
    "LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive "
    "DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations "
    "EnablePartitioning EnableExpress CreatedAt UpdatedAt AccessedAt CountDetails",
)


def queue(path: str = "orders", settings: QueueSettings | None = None, **counts: int) -> QueueDescription:
    known = {"active": 0, "deferred": 0, "scheduled": 0, "dead_letters": 0, "stored_bytes": 0}
    times = {"created_at_ms": 1_000, "updated_at_ms": 2_000, "accessed_at_ms": 3_000}
    return QueueDescription(path, settings or QueueSettings(), **{**known, **times, **counts})


def read_queue_settings(body: bytes) -> QueueSettings:
    return settings_documents.read_settings(
        settings_documents.description_in(body, "QueueDescription"), QUEUE, VALIDATION_CONTEXT
    )


def description_in(document: bytes) -> Element:
    found = fromstring(document).find(f"{ATOM}content/{SB}QueueDescription")
    assert found is not None
    return found


# --- there and back ---

printable = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=50)
notes = st.one_of(st.none(), printable.filter(bool), st.just(" \t\r\n<&>\"' "))
key = st.text("abcXYZ019+/=", min_size=1, max_size=44)
rules = st.builds(
    AuthorizationRule,
    key_name=st.text("abcdef-", min_size=1, max_size=10),
    rights=st.lists(st.sampled_from(RIGHTS), min_size=1, max_size=3, unique=True).map(tuple),
    primary_key=key,
    secondary_key=key,
    created_at_ms=st.integers(-62_135_596_800_000, 253_402_300_799_999),
    modified_at_ms=st.integers(0, 10**13),
    claim_type=st.just("SharedAccessKey"),
    claim_value=st.sampled_from(["None", "other & <more>"]),
)
all_settings = st.builds(
    QueueSettings,
    lock_ms=st.integers(5_000, 300_000),
    max_size_mb=st.integers(1, SIZE_MB_MAX),
    max_delivery_count=st.integers(1, DELIVERY_COUNT_LIMIT),
    default_ttl_ms=st.one_of(st.none(), st.integers(1_000, 10_675_198 * 86_400_000)),
    dead_letter_on_expiration=st.booleans(),
    batched_operations=st.booleans(),
    status=st.sampled_from(QueueStatus),
    user_metadata=notes,
    duplicate_window_ms=st.integers(20_000, 7 * 86_400_000),
    express=st.booleans(),
    max_message_kb=st.one_of(st.none(), st.integers(1, 256)),
    authorization_rules=st.lists(rules, max_size=3, unique_by=lambda rule: rule.key_name).map(tuple),
)


@given(all_settings)
def test_settings_come_back_from_their_own_document(settings: QueueSettings) -> None:
    assert read_queue_settings(queue_entry(queue(settings=settings), CONTEXT)) == settings


@given(all_settings)
def test_the_official_python_model_reads_what_is_written(settings: QueueSettings) -> None:
    entry = QueueDescriptionEntry.deserialize(fromstring(queue_entry(queue(settings=settings), CONTEXT)))
    read: Any = entry.content.queue_description  # type: ignore[union-attr]
    assert read.lock_duration.total_seconds() * 1000 == pytest.approx(settings.lock_ms, abs=0.5)
    assert read.max_delivery_count == settings.max_delivery_count
    assert read.status == settings.status
    assert read.user_metadata == settings.user_metadata
    names = [rule.key_name for rule in read.authorization_rules or ()]
    assert names == [rule.key_name for rule in settings.authorization_rules]


def test_every_setting_has_an_element() -> None:
    from twinbus.broker.admin.fields import FIELDS, RULES_SETTING, SUBSCRIPTION_FIELDS, TOPIC_FIELDS

    queues = {field.setting for field in FIELDS + SUBSCRIPTION_FIELDS}
    topics = {field.setting for field in TOPIC_FIELDS}
    assert queues | {RULES_SETTING} == {field.name for field in fields(QueueSettings)}
    assert topics | {RULES_SETTING} == {field.name for field in fields(TopicSettings)}


# --- the rules of the JavaScript client ---


def test_every_element_the_javascript_client_needs_is_there_once() -> None:
    names = [element.tag.removeprefix(SB) for element in description_in(queue_entry(queue(), CONTEXT))]
    assert len(set(names)) == len(names)
    assert set(JS_NEEDS) <= set(names)


def test_elements_stand_in_the_order_of_the_service() -> None:
    names = [element.tag.removeprefix(SB) for element in description_in(queue_entry(queue(), CONTEXT))]
    some = ["LockDuration", "SizeInBytes", "AuthorizationRules", "Status", "CreatedAt", "CountDetails", "EnableExpress"]
    assert [name for name in names if name in some] == some


def test_count_details_has_one_attribute_a_prefix_and_its_children_use_it() -> None:
    text = queue_entry(queue(active=1, deferred=2, scheduled=3, dead_letters=4), CONTEXT).decode()
    found = re.search(r"<CountDetails ([^>]*)>(.*?)</CountDetails>", text)
    assert found is not None
    assert found[1] == 'xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus"'
    children = dict(re.findall(r"<d2p1:(\w+)>(\d+)</d2p1:", found[2]))
    assert children == {
        "ActiveMessageCount": "3",
        "DeadLetterMessageCount": "4",
        "ScheduledMessageCount": "3",
        "TransferMessageCount": "0",
        "TransferDeadLetterMessageCount": "0",
    }
    assert "<MessageCount>10</MessageCount>" in text


@pytest.mark.parametrize("path", ["orders", "txt/.-_123", "contoso/x-servicebus-transfer/0", "a~b"])
def test_the_name_is_the_path_of_an_absolute_id_and_the_title(path: str) -> None:
    entry = fromstring(queue_entry(queue(path), CONTEXT))
    address = urlsplit(entry.findtext(f"{ATOM}id") or "")
    assert (address.scheme, address.netloc, address.path) == ("https", "127.0.0.1:5672", "/" + path)
    assert entry.findtext(f"{ATOM}title") == path


def test_an_authorization_rule_has_its_type_under_the_prefix_i() -> None:
    rule = AuthorizationRule("app", ("Send",), "one", "two")
    text = queue_entry(queue(settings=QueueSettings(authorization_rules=(rule,))), CONTEXT).decode()
    assert '<AuthorizationRule i:type="SharedAccessAuthorizationRule">' in text
    assert 'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"' in text


# --- feeds ---


def test_a_page_with_a_next_one_has_exactly_two_links_the_second_with_skip_and_top() -> None:
    feed = fromstring(queue_feed((queue("a"), queue("b")), "$skip=2&$top=2&", CONTEXT))
    links = feed.findall(f"{ATOM}link")
    assert [link.get("rel") for link in links] == ["self", "next"]
    assert parse_qs(urlsplit(links[1].get("href") or "").query) == {
        "$skip": ["2"],
        "$top": ["2"],
        "api-version": ["2021-05"],
    }
    assert [entry.findtext(f"{ATOM}title") for entry in feed.findall(f"{ATOM}entry")] == ["a", "b"]
    assert len(QueueDescriptionFeed.deserialize(feed).link or ()) == 2


def test_the_last_page_has_one_link() -> None:
    for document in (queue_feed((queue(),), None, CONTEXT), topic_feed((), None, CONTEXT)):
        assert len(fromstring(document).findall(f"{ATOM}link")) == 1


def test_a_namespace_says_its_name_and_kind() -> None:
    info = fromstring(namespace_entry(0, CONTEXT)).find(f"{ATOM}content/{SB}NamespaceInfo")
    assert info is not None
    assert {element.tag.removeprefix(SB): element.text for element in info} == {
        "CreatedTime": "1970-01-01T00:00:00.000Z",
        "MessagingSKU": "Standard",
        "ModifiedTime": "1970-01-01T00:00:00.000Z",
        "Name": "contoso",
        "NamespaceType": "Messaging",
    }


@given(st.text(max_size=30))
def test_an_error_is_a_document_whatever_its_text(text: str) -> None:
    error = fromstring(error_document(404, text))
    assert (error.tag, error.findtext("Code")) == ("Error", "404")
    assert len(error.findtext("Detail") or "") == len(text)


# --- durations and times ---

Given = TypeVar("Given")
Read = TypeVar("Read")


def accepted(read: Callable[[Given], Read], given: Given) -> Read:
    """What is read; what is refused says nothing about writing."""
    try:
        return read(given)
    except (ValueError, ArgumentError):
        reject()


@given(st.integers(-(10**12), 10_675_198 * 86_400_000))
def test_a_duration_comes_back(value_ms: int) -> None:
    assert parse_iso_duration(iso_duration(value_ms)) == value_ms


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [("PT1M", 60_000), ("P1DT2H3M4.5S", 93_784_500), ("PT300S", 300_000), ("-PT5S", -5_000), ("P14D", 14 * 86_400_000)],
)
def test_durations_are_iso_8601(text: str, value_ms: int) -> None:
    assert parse_iso_duration(text) == value_ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "5", "1m", "P1Y", "P1M", "PT1", "PT1,5S", "pt1m", "PT٣S", "P" * 99]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(text)):
        parse_iso_duration(text)


@pytest.mark.parametrize("text", [INFINITE, "P10675199DT2H48M5.477539S", "P10675199D", "P99999999D"])
def test_very_long_is_for_ever(text: str) -> None:
    assert parse_iso_duration_or_infinite(text) is None
    assert iso_duration_or_infinite(None) == INFINITE


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_a_time_comes_back(value_ms: int) -> None:
    assert parse_time_ms(utc_time_ms(value_ms)) == value_ms


@given(st.from_regex(r"-?P([0-9]{1,9}D)?T([0-9]{1,9}H)?([0-9]{1,9}M)?[0-9]{1,12}(\.[0-9]{1,12})?S", fullmatch=True))
def test_every_duration_that_is_read_can_be_written(text: str) -> None:
    value_ms = accepted(parse_iso_duration, text)
    written = iso_duration(value_ms)
    assert abs(value_ms) > 10**9 * 86_400_000 or parse_iso_duration(written) == value_ms


@given(st.datetimes(), st.integers(-1439, 1439), st.sampled_from(["", "9", "999"]))
def test_every_time_that_is_read_can_be_written(moment: datetime, zone_minutes: int, more_digits: str) -> None:
    hours, minutes = divmod(abs(zone_minutes), 60)
    zone = f"{'-' if zone_minutes < 0 else '+'}{hours:02}:{minutes:02}"
    value_ms = accepted(parse_time_ms, moment.isoformat(timespec="microseconds") + more_digits + zone)
    assert parse_time_ms(utc_time_ms(value_ms)) == value_ms


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59.9999999-23:59", "0001-01-01T00:00:00+00:01"])
def test_a_time_that_its_zone_leads_out_of_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_time_ms(text)
    rule = f"<AuthorizationRule><KeyName>app</KeyName><CreatedTime>{text}</CreatedTime></AuthorizationRule>"
    assert "must have times such as" in refusal(entry(f"<AuthorizationRules>{rule}</AuthorizationRules>"))


@given(st.integers(-(2**80), 2**80))
def test_a_time_that_cannot_be_is_written_as_the_nearest(value_ms: int) -> None:
    parse_time_ms(utc_time_ms(value_ms))


# --- whatever is accepted can be written ---

durations = st.sampled_from(["PT30S", "PT5M", "PT20.0000000001S", "PT4.9999S"])
endless = st.sampled_from(["PT30S", "P365DT0.0004S", INFINITE, "P999999999DT999999999H", "-PT5S"])
whole = st.sampled_from(["1", "10", "+5", "0256", "2147483647"])
flags = st.sampled_from(["true", "false", "TRUE", "1", "0"])
texts = st.one_of(
    st.sampled_from(["", " ", "\t", "\r\n x", "a & <b>", "\U0001f600", "\u2028", "\ufffd", "]]>"]), printable
)
times = st.one_of(
    st.sampled_from(["", "2026-01-31", "9999-12-31T23:59:59.9999999-23:59", "0001-01-01T00:00:00+01:00", "20260131"]),
    st.datetimes().map(lambda moment: moment.isoformat() + "-12:00"),
)
raw_values = {
    "LockDuration": durations,
    "MaxSizeInMegabytes": whole,
    "DefaultMessageTimeToLive": endless,
    "DuplicateDetectionHistoryTimeWindow": durations,
    "MaxDeliveryCount": whole,
    "MaxMessageSizeInKilobytes": whole,
    "EnableExpress": flags,
    "DeadLetteringOnMessageExpiration": flags,
    "Status": st.sampled_from(QueueStatus),
    "UserMetadata": texts,
}
raw_rule = st.fixed_dictionaries(
    {"KeyName": st.sampled_from(["app", "other", "a&b"])},
    optional=dict.fromkeys(("ClaimType", "ClaimValue"), texts) | {"CreatedTime": times},
)


def elements(values: dict[str, str]) -> str:
    return "".join(tag(name, plain(value)) for name, value in values.items())


def raw_rule_element(values: dict[str, str]) -> str:
    rights = tag("Rights", tag("AccessRights", "Send"))
    return tag("AuthorizationRule", elements(values), rights)


@given(st.fixed_dictionaries({}, optional=raw_values), st.lists(raw_rule, max_size=2))
def test_every_description_that_is_accepted_can_be_written_and_comes_back(
    values: dict[str, str], raw_rules: list[dict[str, str]]
) -> None:
    body = entry(elements(values) + tag("AuthorizationRules", *map(raw_rule_element, raw_rules)))
    settings = accepted(read_queue_settings, body)
    assert read_queue_settings(queue_entry(queue(settings=settings), CONTEXT)) == settings


# --- what is refused ---


def entry(description: str, name: str = "QueueDescription") -> bytes:
    content = f'<{name} xmlns="{SB[1:-1]}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{description}</{name}>'
    return f'<entry xmlns="{ATOM[1:-1]}"><content type="application/xml">{content}</content></entry>'.encode()


def refusal(body: bytes) -> str:
    with pytest.raises(ArgumentError) as caught:
        read_queue_settings(body)
    return str(caught.value)


def test_all_problems_are_reported_in_one_message() -> None:
    text = refusal(
        entry(
            "<LockDuration>PT10M</LockDuration><MaxDeliveryCount>many</MaxDeliveryCount><ForwardTo>sb://h/x"
            "</ForwardTo><Status>Renaming</Status><Colour>red</Colour><EnableExpress>maybe</EnableExpress>"
            "<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>"
        )
    )
    for part in (
        "LockDuration must be from 5 s to 5 min, got 600 s",
        "MaxDeliveryCount must be a whole number, got 'many'",
        "ForwardTo must be in this namespace, 'contoso:5671', got 'sb://h/x'",
        "Status must be one of Active, Disabled, SendDisabled, ReceiveDisabled, got 'Renaming'",
        "'Colour' is not a setting",
        "EnableExpress must be true or false, got 'maybe'",
        "MaxMessageSizeInKilobytes must be at most 256, as in this namespace, got 1024",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("LockDuration", "PT4S", "5 s to 5 min"),
        ("LockDuration", "", "must be a duration"),
        ("LockDuration", INFINITE, "5 s to 5 min"),
        ("MaxSizeInMegabytes", "-1", "from 1 to 81920"),
        ("MaxSizeInMegabytes", "9" * 400, "a whole number"),
        ("MaxDeliveryCount", "2147483648", "from 1 to 2147483647"),
        ("DefaultMessageTimeToLive", "PT0S", "at least 1 s"),
        ("DuplicateDetectionHistoryTimeWindow", "P25D", "20 s to 7 days"),
        ("ForwardTo", "sb://h/other", "must be in this namespace"),
        ("ForwardTo", "sb://contoso:1/other", "must be in this namespace"),
        ("ForwardTo", "other//x", "must be the path of a queue or topic"),
        ("ForwardDeadLetteredMessagesTo", "sb://contoso/a/$deadletterqueue", "must be the path of a queue or topic"),
        ("AutoDeleteOnIdle", "PT4M", "at least 5 min"),
        ("UserMetadata", "x" * 1025, "at most 1024"),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_its_field(field: str, value: str, what: str) -> None:
    text = refusal(entry(f"<{field}>{value}</{field}>"))
    assert text.startswith(field + " ")
    assert what in text
    assert len(text) < 300


def test_read_only_elements_and_nil_values_are_passed_over() -> None:
    body = entry('<MessageCount>7</MessageCount><CreatedAt>x</CreatedAt><LockDuration i:nil="true"/><ForwardTo/>')
    assert read_queue_settings(body) == QueueSettings()


def test_an_element_given_twice_is_refused() -> None:
    assert "MaxDeliveryCount must be given once" in refusal(entry("<MaxDeliveryCount>1</MaxDeliveryCount>" * 2))


def test_a_rule_without_keys_gets_new_ones() -> None:
    body = entry(
        "<AuthorizationRules><AuthorizationRule><KeyName>app</KeyName><Rights><AccessRights>Send</AccessRights></Rights>"
        "</AuthorizationRule></AuthorizationRules>"
    )
    (rule,) = read_queue_settings(body).authorization_rules
    assert rule == AuthorizationRule("app", ("Send",), "new-key", "new-key", 1_000, 1_000)


def test_a_rule_with_a_bad_time_is_refused() -> None:
    body = entry(
        "<AuthorizationRules><AuthorizationRule><CreatedTime>soon</CreatedTime></AuthorizationRule></AuthorizationRules>"
    )
    assert "AuthorizationRules must have times such as" in refusal(body)


BOMB = b'<!DOCTYPE a [<!ENTITY x "lol"><!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;&x;&x;">]><entry>&y;</entry>'


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "well-formed"),
        (b"garbage", "well-formed"),
        (b"<entry>", "well-formed"),
        (b"\xff\xfe\x00", "well-formed"),
        (b'<?xml version="1.0" encoding="nonsense"?><a/>', "well-formed"),
        (b'<?xml version="1.0" encoding="shift-jis"?><a/>', "well-formed"),
        (b"<a>&undefined;</a>", "well-formed"),
        (BOMB, "DOCTYPE"),
        (BOMB.decode().encode("utf-16"), "UTF-8"),
        (b'<?xml version="1.0" encoding="iso-8859-1"?>' + BOMB, "DOCTYPE"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "DOCTYPE"),
        (b"<a>" * 100_000, "deeper than 16"),
        (b"<a>" + b"<b/>" * 10_000 + b"</a>", "more than 2000"),
        (b"<entry/>", "Atom entry"),
        (b'<entry xmlns="http://www.w3.org/2005/Atom"/>', "Atom entry"),
        (entry("", "TopicDescription"), "must be a QueueDescription"),
        (entry("", "Other"), "must be a QueueDescription"),
    ],
)
def test_what_is_no_description_of_a_queue_is_refused(body: bytes, what: str) -> None:
    assert what in refusal(body)


def test_entities_in_entities_are_not_expanded_before_they_are_refused() -> None:
    entities = b"".join(b'<!ENTITY e%d "%b">' % (level + 1, b"&e%d;" % level * 10) for level in range(9))
    bomb = b'<!DOCTYPE x [<!ENTITY e0 "x">' + entities + b"]><x>&e9;</x>"
    begun = time.thread_time()
    assert "DOCTYPE" in refusal(bomb)
    assert time.thread_time() - begun < 1, "expanded they are a thousand million characters"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with pytest.raises(ArgumentError):
        read_queue_settings(body)
