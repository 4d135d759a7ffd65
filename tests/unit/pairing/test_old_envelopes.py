"""Backlog messages that version 0.1.0 encoded, and the same written by this version."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from envelope_0_1 import read_envelope
from version_0_1 import INVOICES, backlog_message

from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import PropertyField
from twinbus.pairing.backlog.envelope import SCHEDULE_ANNOTATION, address, open_envelope, read_aliases

LATER_MS = round(datetime(2099, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 86_400_000
SET = {
    "session": ("s-1", None, None),
    "ttl": (None, DAY_MS, None),
    "schedule": (None, None, LATER_MS),
    "everything": ("s-2", DAY_MS // 4, LATER_MS),
}
"""Session id, time to live and schedule of those that have any."""


@pytest.mark.parametrize("message_id", sorted(INVOICES))
def test_an_old_message_is_read_as_it_was_meant(message_id: str) -> None:
    aliases = read_aliases(backlog_message(message_id))
    assert aliases.path == "invoices"
    assert (aliases.session_id, aliases.ttl_ms, aliases.due_at_ms) == SET.get(message_id, (None, None, None))


@pytest.mark.parametrize("message_id", sorted(INVOICES))
def test_an_old_message_goes_home_as_its_application_sent_it(message_id: str) -> None:
    old = backlog_message(message_id)
    home = open_envelope(old).encoded
    layout = sections.walk(home)
    session_id, ttl_ms, due_at_ms = SET.get(message_id, (None, None, None))
    assert sections.read_property(home, layout, PropertyField.MESSAGE_ID) == message_id
    assert sections.read_property(home, layout, PropertyField.GROUP_ID) == session_id
    assert (sections.read_header(home, layout).ttl_ms if layout.header else None) == ttl_ms
    assert sections.read_annotation(home, layout, SCHEDULE_ANNOTATION) == due_at_ms
    assert not [name for name in sections.read_application_properties(home, layout) if str(name).startswith("x-ms-")]
    assert _part(home, "body") == _part(old, "body")
    assert _part(home, "footer") == _part(old, "footer")


@pytest.mark.parametrize("message_id", sorted(INVOICES))
def test_this_version_writes_what_the_old_one_wrote(message_id: str) -> None:
    old = backlog_message(message_id)
    new = address(open_envelope(old).encoded, "invoices")
    assert read_envelope(new) == read_envelope(old)
    for section in ("properties", "body", "footer"):
        assert _part(new, section) == _part(old, section)


def _part(message: bytes, section: str) -> bytes:
    span = getattr(sections.walk(message), section)
    return b"" if span is None else message[span[0] : span[1]]
