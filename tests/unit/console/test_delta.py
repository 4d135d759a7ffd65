"""A page that is told what is new has what the server has."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from twinbus.console.delta import ROWS, delta

ROW = st.dictionaries(st.sampled_from(["name", "state"]), st.integers(0, 2))
SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "entities": st.dictionaries(st.sampled_from("abcd"), ROW),
        "events": st.dictionaries(st.sampled_from("123"), ROW),
        "verdict": ROW,
    },
)


def as_page_applies(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    after = dict(before)
    for name, change in changes.items():
        if name in ROWS:
            rows = {**after.get(name, {}), **change["rows"]}
            after[name] = {key: row for key, row in rows.items() if key not in change["gone"]}
        else:
            after[name] = change["value"]
    return after


@given(st.lists(SECTIONS, max_size=6))
def test_what_is_told_makes_the_page_equal_to_the_state(states: list[dict[str, Any]]) -> None:
    told: dict[str, Any] = {}
    page: dict[str, Any] = {}
    for state in states:
        now = {**told, **state}  # sections are replaced, and never go away
        page = as_page_applies(page, delta(told, now))
        assert page == now
        assert delta(now, now) == {}
        told = now


def test_a_row_that_has_not_changed_is_not_told_again() -> None:
    before = {"entities": {"orders": {"state": "healthy"}, "invoices": {"state": "healthy"}}}
    after = {"entities": {"orders": {"state": "failing"}, "invoices": {"state": "healthy"}}}
    assert delta(before, after) == {"entities": {"rows": {"orders": {"state": "failing"}}, "gone": []}}
