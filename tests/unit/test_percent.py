"""Shares in text."""

from __future__ import annotations

import pytest

from twinbus.percent import percent


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.489898, "48.99%"),
        (1, "100.00%"),
        (0, "0.00%"),
        (0.999996, "99.9996%"),
        (0.0000012, "0.0001%"),
        (0.5, "50.00%"),
    ],
)
def test_a_share_has_two_places_unless_they_would_claim_all_or_nothing(share: float, text: str) -> None:
    assert percent(share) == text
