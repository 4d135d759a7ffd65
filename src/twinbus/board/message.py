"""A report as a message on the board, and a message that was peeked as what it says."""

from __future__ import annotations

from twinbus.amqp.message import sections
from twinbus.amqp.message.message_builder import encode_message
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.board.board_peek import PostedReport
from twinbus.board.queue import LIFE_S
from twinbus.board.report import CONTENT_TYPE, REPORT_BYTES_MAX, ProcessReport
from twinbus.errors import DecodeError

SIGNATURE = "x-twinbus-signature"
OVERHEAD_BYTES_MAX = 4 * 1024
"""Of a message around its body, annotations of the service included."""


def encode_post(report: ProcessReport, body: bytes, signature: str = "") -> bytes:
    """The message that is sent; `body` is the encoded report."""
    return encode_message(
        header=Header(ttl_ms=LIFE_S * 1000),
        properties={
            PropertyField.MESSAGE_ID: f"{report.instance}:{report.number}",
            PropertyField.CONTENT_TYPE: CONTENT_TYPE,
        },
        application_properties={SIGNATURE: signature} if signature else None,
        data=body,
    )


def read_post(message: bytes, sequence: int, enqueued_ms: int | None) -> PostedReport:
    """What a message says; one that is no report, or is too large for one, has an empty body."""
    size = len(message)
    if size > REPORT_BYTES_MAX + OVERHEAD_BYTES_MAX:
        return PostedReport(sequence, enqueued_ms, b"", size)
    try:
        layout = sections.walk(message)
        body = b"".join(sections.data_sections(message, layout))
        signature = sections.read_application_property(message, layout, SIGNATURE)
    except DecodeError:
        return PostedReport(sequence, enqueued_ms, b"", size)
    return PostedReport(sequence, enqueued_ms, body, size, signature if isinstance(signature, str) else "")
