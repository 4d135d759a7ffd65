"""What was measured: rows to print and lines to keep."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinbus.cli.output import table

KEPT = Path(__file__).parent / "results" / "bench.jsonl"


@dataclass(frozen=True, slots=True)
class Must:
    """A limit: `Must(">=", 2.0)`."""

    sign: str
    limit: float

    def is_met_by(self, value: float) -> bool:
        compare: Callable[[float, float], bool] = {">=": operator.ge, "<=": operator.le, "<": operator.lt}[self.sign]
        return compare(value, self.limit)

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was measured; `details` are kept but not printed."""

    name: str
    value: float
    unit: str
    must: Must | None = None
    ours: int | None = None
    theirs: int | None = None
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        return None if self.must is None else self.must.is_met_by(self.value)

    def as_json(self) -> dict[str, Any]:
        known = {
            "row": self.name,
            "value": round(self.value, 3),
            "unit": self.unit,
            "must": None if self.must is None else str(self.must),
            "met": self.met,
            "twinbus_per_s": self.ours,
            "rabbitmq_per_s": self.theirs,
            **self.details,
        }
        return {name: value for name, value in known.items() if value is not None}

    def cells(self) -> tuple[object, ...]:
        is_met = {None: "", True: "yes", False: "MISSED"}[self.met]
        value = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3f}"
        rates = (_or_nothing(self.ours), _or_nothing(self.theirs))
        return (self.name, *rates, value, self.unit, self.must or "", is_met, self.note)


def _or_nothing(number: int | None) -> object:
    return "" if number is None else number


def drawn(title: str, rows: Sequence[Row]) -> str:
    """A table of the rows; columns of which they have nothing are left out."""
    heads = (title, "twinbus/s", "RabbitMQ/s", "value", "unit", "must", "met", "spread")
    columns = [column for column in zip(heads, *(row.cells() for row in rows), strict=True) if any(column[1:])]
    return table(list(zip(*columns, strict=True)))


def keep(rows: Sequence[Row], circumstances: dict[str, Any]) -> None:
    """Append the run as one JSON line."""
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**circumstances, "rows": [row.as_json() for row in rows]}) + "\n")
