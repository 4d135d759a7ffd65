"""Durations, times, sizes and shares: one parser and one printer for each form."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus import units
from twinbus.errors import OptionsError

SOURCE = Path(__file__).parents[2] / "src" / "twinbus"
NOW = datetime(2031, 3, 9, 14, 5, tzinfo=UTC)
MOMENTS_MS = st.integers(-62_135_596_800_000, 253_402_300_799_999)


# --- what is printed can be parsed ---


@given(
    st.integers(0, 10**9),
    st.sampled_from([("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)]),
)
def test_a_duration_in_an_option_is_its_number_times_its_unit(number: int, unit: tuple[str, int]) -> None:
    assert units.parse_duration(f"{number}{unit[0]}") == number * unit[1]
    assert units.parse_seconds(f" {number}{unit[0]} ", "--for") == number * unit[1] / 1000


@given(st.integers(-(10**12), 10_675_198 * 86_400_000))
def test_an_iso_duration_comes_back(value_ms: int) -> None:
    assert units.parse_iso_duration(units.iso_duration(value_ms)) == value_ms
    assert units.parse_iso_duration_or_infinite(units.iso_duration_or_infinite(value_ms)) == value_ms


def test_infinite_comes_back() -> None:
    assert units.parse_iso_duration_or_infinite(units.iso_duration_or_infinite(None)) is None


@given(MOMENTS_MS)
def test_a_time_comes_back_in_every_form_that_files_hold(value_ms: int) -> None:
    at = units.EPOCH + timedelta(milliseconds=value_ms)
    for text in (
        units.utc_time_ms(value_ms),
        units.utc_time_or_ms(value_ms),
        units.utc_time(at),
        units.offset_time(at),
    ):
        assert units.parse_time_ms(text) == value_ms
        assert units.parse_time(text) == at
    assert units.parse_time(units.clock_time(at)) == at.replace(microsecond=0)
    assert units.parse_time(units.file_time(at)) == at.replace(microsecond=0)
    assert units.parse_time(units.file_time(at, milliseconds=True)) == at


@given(st.datetimes(), st.integers(-1439, 1439))
def test_a_time_is_printed_in_utc_whatever_its_zone(at: datetime, offset_minutes: int) -> None:
    at = at.replace(year=2031, microsecond=0)
    away = at.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    assert units.parse_time(units.utc_time(away)) == away
    assert units.utc_time(at) == units.utc_time(at.replace(tzinfo=UTC))


@given(st.integers(0, 10**6), st.sampled_from(["KB", "MB", "GB", "KiB", "MiB", "GiB", "kib", ""]))
def test_a_size_in_an_option_is_its_number_times_its_unit(number: int, unit: str) -> None:
    step = 1024 if "i" in unit else 1000
    assert units.parse_size(f"{number} {unit}", "--keep") == number * step ** " KMG".index(unit[:1].upper() or " ")


# --- printed for people ---


@given(st.integers(0, 10**12))
def test_an_exact_duration_adds_up_and_a_rough_one_is_its_beginning(length_ms: int) -> None:
    words = units.exact_duration(length_ms / 1000).split(" ")
    unit_ms = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}
    assert sum(int(count) * unit_ms[unit] for count, unit in zip(words[::2], words[1::2], strict=True)) == length_ms
    whole = units.exact_duration(length_ms // 1000)
    assert whole.startswith(units.rough_duration(length_ms // 1000))


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (units.exact_duration(timedelta(seconds=-90)), "-1 min 30 s"),
        (units.exact_duration(0), "0 s"),
        (units.rough_duration(93_784.6), "1 d 2 h"),
        (units.short_duration(5_400_000), "1.5 h"),
        (units.short_duration(0), "0 ms"),
        (units.report_duration(90_180_000), "25 h 3 min"),
        (units.report_duration(3_605_000), "1 h"),
        (units.report_duration(250), "250 ms"),
        (units.measured_duration(0.081), "0.08 s"),
        (units.measured_duration(123.4), "123 s"),
        (units.utc_time(NOW), "2031-03-09T14:05:00.000Z"),
        (units.utc_time_ms(2**80), "9999-12-31T23:59:59.999Z"),
        (units.utc_time_or_ms(2**80), f"{2**80} ms"),
        (units.clock_time_or_ms(2**80), f"{2**80} ms"),
        (units.clock_time(NOW), "2031-03-09 14:05:00"),
        (units.clock_time(NOW, seconds=False), "2031-03-09 14:05"),
        (units.offset_time(NOW, "seconds"), "2031-03-09T14:05:00+00:00"),
        (units.file_time(NOW, milliseconds=True), "20310309T140500.000Z"),
        (units.size_text(None), "?"),
        (units.size_text(999), "999 B"),
        (units.size_text(12_900_000), "12.3 MB"),
        (units.size_text(2**60), "1048576 TB"),
        (units.megabytes(1_234_500_000), "1,234.5"),
    ],
)
def test_every_form_looks_as_documented(printed: str, text: str) -> None:
    assert printed == text


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
    assert units.percent(share) == text


# --- refused ---


def test_a_time_of_an_option_is_a_time_or_a_duration() -> None:
    assert units.parse_future_time("10m", NOW, "--schedule") == NOW + timedelta(minutes=10)
    assert units.parse_past_time("10m", NOW, "--before") == NOW - timedelta(minutes=10)
    assert units.parse_future_time("2031-03-09T14:05", NOW, "--schedule") == NOW
    for parse in (units.parse_future_time, units.parse_past_time):
        with pytest.raises(OptionsError, match=r"^--at takes a time, e\.g\. .* got 'soon'"):
            parse("soon", NOW, "--at")


def test_a_problem_names_its_option() -> None:
    with pytest.raises(OptionsError, match=r"^--for: a duration needs a number and a unit"):
        units.parse_duration("30", "--for")
    with pytest.raises(OptionsError, match=r"^--keep takes a number of bytes"):
        units.parse_size("much", "--keep")


def test_a_time_of_the_portal_has_the_month_first() -> None:
    assert units.parse_portal_time(" 3/9/2025, 6:00:00.250 PM ") == datetime(2025, 3, 9, 18, 0, 0, 250_000, UTC)
    with pytest.raises(ValueError, match="9/3"):
        units.parse_portal_time("9/3/2025 18:00")


# --- nobody else does it ---

ELSEWHERE = {
    "a second parser of times": re.compile(r"fromisoformat|strptime"),
    "a second printer of times": re.compile(r"\bisoformat\(|strftime|[\w)]:%[YHmd]"),
    "a second parser of durations": re.compile(
        r"re\.(compile|fullmatch|match)\(.*(\bms\||\|ms\b|\|h\b|\)[smhd]\"|\\dD|\[smhd)"
    ),
    "a second parser of sizes": re.compile(r"re\.(compile|fullmatch|match)\(.*(\[KMG|KI?B)|\"(Ki|Mi|Gi)B\""),
    "a second printer of sizes": re.compile(r"/= 10(24|00)\b|/ ?1e6:|/ 10(24|00) ?\*\* ?2"),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_no_other_file_parses_or_prints_units(what: str) -> None:
    files = [file for file in sorted(SOURCE.rglob("*.py")) if file != SOURCE / "units.py"]
    lines = [
        (file, number, line) for file in files for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
    ]
    found = [f"{file.relative_to(SOURCE)}:{number}" for file, number, line in lines if ELSEWHERE[what].search(line)]
    assert found == [], f"{what} is in {found}"


def test_what_is_looked_for_elsewhere_would_be_found() -> None:
    text = (SOURCE / "units.py").read_text("utf-8")
    assert all(pattern.search(text) for pattern in ELSEWHERE.values())
