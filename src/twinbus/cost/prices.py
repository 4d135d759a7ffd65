"""A dated table of list prices. Replace it with your own: prices change, and yours may be lower."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from twinbus.errors import OptionsError

MILLION = 1_000_000
GB = 10**9


class Tier(msgspec.Struct, frozen=True):
    """The price of a million operations, up to this many million a month; None: no bound."""

    usd_per_million: float
    up_to_million: float | None = None


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List prices in US dollars. The defaults are the public ones for US regions on `as_of`."""

    as_of: str = "2026-09-20"
    source: str = "public list prices, US regions"
    standard_usd_a_month: float = 9.81
    """Once for all Standard namespaces of a subscription."""
    standard_operations: tuple[Tier, ...] = (Tier(0.0, 13), Tier(0.8, 100), Tier(0.5, 2500), Tier(0.2))
    """For all Standard namespaces of a subscription together."""
    connections_included: int = 1000
    usd_per_connection: float = 0.03
    egress_usd_per_gb: float = 0.0
    """For what leaves the region; nothing while applications and namespaces are in the same one."""
    premium_usd_a_month: float = 677.08
    """For each messaging unit."""
    replication_usd_per_gb: float = 0.09

    def operations_usd(self, operations: float) -> float:
        usd, below = 0.0, 0.0
        for tier in self.standard_operations:
            top = float("inf") if tier.up_to_million is None else tier.up_to_million * MILLION
            usd += max(0.0, min(operations, top) - below) / MILLION * tier.usd_per_million
            below = top
        return usd

    def connections_usd(self, connections: int) -> float:
        """The price of this many connections, held for a month."""
        return max(0, connections - self.connections_included) * self.usd_per_connection

    def egress_usd(self, sent_bytes: float) -> float:
        return sent_bytes / GB * self.egress_usd_per_gb


def load_prices(file: Path | None) -> Prices:
    """The prices in a TOML file; what it does not name has the default. Raises `OptionsError` with all problems."""
    if file is None:
        return Prices()
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionsError(f"prices cannot be read from {file}: {error}") from error
    try:
        prices = msgspec.convert(table, Prices)
    except msgspec.ValidationError as error:
        raise OptionsError(f"{file} is not a price table: {error}") from error
    problems = [*_price_problems(table), *_tier_problems(prices.standard_operations)]
    if problems:
        raise OptionsError(f"{file} is not a price table: {'; '.join(problems)}")
    return prices


def _price_problems(table: dict[str, Any]) -> Iterator[str]:
    if "as_of" not in table:
        yield 'it has no date: as_of = "2026-01-31"'
    for name, value in table.items():
        if isinstance(value, int | float) and not 0 <= value < float("inf"):
            yield f"{name} is {value}"


def _tier_problems(tiers: tuple[Tier, ...]) -> Iterator[str]:
    tops = [tier.up_to_million for tier in tiers]
    limits = [top for top in tops[:-1] if top is not None]
    if not tops or tops[-1] is not None or len(limits) != len(tops) - 1 or limits != sorted(set(limits)):
        yield "standard_operations must rise, and only the last tier is without up_to_million"
    if any(not 0 <= tier.usd_per_million < float("inf") for tier in tiers):
        yield "a tier must not cost less than 0"
