"""The short way to open an envelope, for what nearly every letter is.

`pairing.envelope` knows every letter and takes it apart; that is more than half of what a letter costs on its way home.
Most have nothing but a destination in their envelope, and nothing but the service's own entries in their annotations.
For those the result is known without editing: leave out three pieces. Whatever looks different takes the long way.
"""

from __future__ import annotations

import re
from functools import lru_cache

from twinbus.amqp.decoding import after_descriptor, item_offsets
from twinbus.amqp.message_builder import APPLICATION_PROPERTIES, compound_section
from twinbus.amqp.sections import Layout, read_header, walk
from twinbus.pairing.envelope import PATH, Aliases, read_aliases

# Only the service's entries, each with a value whose width its first byte tells: so the pattern reads them as a decoder
# would, and a message with any entry of its own does not fit.
_VALUE = rb"(?:[\x81\x83\x80].{8}|[\x53-\x55].|[\x70\x71].{4}|[\x43-\x45])"
_NAMES = (
    b"x-opt-sequence-number",
    b"x-opt-enqueued-time",
    b"x-opt-enqueue-sequence-number",
    b"x-opt-message-state",
    b"x-opt-locked-until",
)
_NAME = b"|".join(re.escape(bytes((len(name),)) + name) for name in _NAMES)  # a longer name may begin like one of these
_SERVICE_ENTRIES = re.compile(rb"\x00\x53\x72\xc1..(?:\xa3(?:" + _NAME + rb")" + _VALUE + rb")+", re.DOTALL)
_LOCK_TOKEN = re.compile(rb"\x00\x53\x71\xc1..\xa3\x10x-opt-lock-token\x98.{16}", re.DOTALL)
_PATH_KEY = b"\xa1\x09" + PATH.encode()
_ALIAS_START = b"x-ms-"
_KEPT_BYTES_MAX = 300


def read_letter(letter: bytes) -> tuple[Aliases, bytes | None]:
    """What a letter says of its way home, and the letter as it goes home if the short way leads there.

    Raises as `read_aliases` does: `EnvelopeError` or `DecodeError`.
    """
    layout = walk(letter)
    if _is_usual(letter, layout):
        found = _without_path(letter, layout)
        if found is not None:
            return found
    return read_aliases(letter), None


def _is_usual(letter: bytes, layout: Layout) -> bool:
    """Whether header and annotations have nothing in them that needs a closer look."""
    header, marks, annotations = layout.header, layout.delivery_annotations, layout.message_annotations
    if header is not None and read_header(letter, layout).delivery_count:
        return False
    if marks is not None and not _LOCK_TOKEN.fullmatch(letter, *marks):
        return False
    if annotations is None or not _SERVICE_ENTRIES.fullmatch(letter, *annotations):
        return False
    # They come first and together; the official Python client may write its delivery annotations last.
    starts = [span[0] for span in (header, marks, annotations) if span is not None]
    return starts == sorted(starts) and starts[0] == 0


def _without_path(letter: bytes, layout: Layout) -> tuple[Aliases, bytes] | None:
    span, annotations = layout.application_properties, layout.message_annotations
    if span is None or annotations is None or letter.count(_ALIAS_START, *span) != 1:
        return None
    offsets = item_offsets(letter, after_descriptor(letter, span[0]))
    if not len(offsets) % 2 or len(offsets) < 3:
        return None
    key, value, end = offsets[-3:]  # a paired client puts it last
    if letter[key:value] != _PATH_KEY or letter[value] != 0xA1 or not 2 < end - value <= _KEPT_BYTES_MAX:
        return None
    aliases = _aliases(letter[value + 2 : end])
    if aliases is None:
        return None
    kept = letter[offsets[0] : key]
    properties = compound_section(APPLICATION_PROPERTIES, 0xC1, len(offsets) - 3, kept) if kept else b""
    head = letter[: layout.header[1]] if layout.header is not None else b""
    return aliases, b"".join((head, letter[annotations[1] : span[0]], properties, letter[span[1] :]))


@lru_cache(maxsize=1024)
def _aliases(path: bytes) -> Aliases | None:
    try:
        return Aliases(path.decode())
    except UnicodeDecodeError:
        return None
