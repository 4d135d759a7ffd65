"""What may differ between an output on a page and the one that is printed, and what may not."""

from __future__ import annotations

from doc_blocks import DOCS, Block
from sample_output import difference


def shown(code: str, how: str = "lines") -> Block:
    return Block(DOCS / "index.md", 1, "text", code, {"output": how})


def test_times_sizes_addresses_and_ids_may_differ() -> None:
    page = f"primary  contoso (127.0.0.1:5672)\n{'1a' * 16}  contoso/x-servicebus-transfer/3  6 ms\n"
    printed = f"primary    contoso (localhost:61001)\n{'f0' * 16}  contoso/x-servicebus-transfer/9  1.2 s\n"
    assert difference(shown(page, "all"), printed) is None


def test_a_count_a_word_or_the_order_may_not_differ() -> None:
    assert difference(shown("3 messages\n"), "4 messages\n") is not None
    assert difference(shown("healthy\n"), "waiting\n") is not None
    assert difference(shown("one\ntwo\n"), "two\none\n") is not None


def test_other_lines_may_stand_between_unless_all_are_shown() -> None:
    assert difference(shown("one\nthree...\n"), "one\ntwo\nthree and more\n") is None
    assert difference(shown("one\n", "all"), "one\ntwo\n") is not None
