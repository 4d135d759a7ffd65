"""What was found by the runs so far: each run replaces its own part, and the page shows them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "results.json"
DIRECT, PROXIED = "direct", "through the proxy"


def read_found() -> dict[str, dict[str, Any]]:
    """By language and way: rows of name, whether it passed, evidence."""
    found: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def keep_found(language: str, way: str, rows: Any) -> None:
    found = read_found()
    found.setdefault(language, {})[way] = rows
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
