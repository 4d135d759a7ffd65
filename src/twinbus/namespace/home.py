"""A namespace's folder: its store and its key, readable by their owner only."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from twinbus.errors import StoreError
from twinbus.own_files import check_folder, make_own_folder, read_own, refuse_foreign_link, write_whole

STORE_FILE = "store.sqlite"
KEY_FILE = "key"
RULE_KEYS_FILE = "rule-keys.json"
CREATED_FILE = "created"


def make_home(data: Path, name: str) -> Path:
    """The folder of a namespace, made if it is missing; raises `StoreError` if it cannot be written, or by too many."""
    home = data / name.lower()
    try:
        make_own_folder(home)
        check_folder(data)
        check_folder(home, must_be_ours=True)
    except OSError as error:
        raise StoreError(f"the data directory {home} cannot be made: {error.strerror}") from None
    if not os.access(home, os.W_OK | os.X_OK):
        raise StoreError(f"the data directory {home} cannot be written: permission denied")
    return home


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def kept_key(home: Path) -> str:
    """The namespace's own key: made at its first start, the same ever after."""
    path = home / KEY_FILE
    try:
        if not path.exists():
            _write_new(path, new_key())
        key = read_own(path).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"the key file {path} cannot be used: {error}") from None
    if not key:
        raise StoreError(f"the key file {path} is empty: remove it to get a new key")
    return key


def kept_rule_keys(home: Path, names: Sequence[str]) -> list[str]:
    """A key for each of these rules, made when one is first asked for. Keys of rules not asked for are kept too."""
    path = home / RULE_KEYS_FILE
    try:
        known = json.loads(read_own(path)) if path.exists() else {}
        keys = {str(name): str(key) for name, key in known.items() if key}
        missing = {name: new_key() for name in names if name not in keys}
        if missing:
            _write_new(path, json.dumps(keys | missing, indent=1))
    except (OSError, ValueError, AttributeError) as error:
        raise StoreError(f"the key file {path} cannot be used: {error}") from None
    return [(keys | missing)[name] for name in names]


def kept_creation(home: Path, now_ms: int) -> int:
    """When the namespace was made: at its first start, the same ever after."""
    path = home / CREATED_FILE
    try:
        if not path.exists():
            _write_new(path, _written_time(min(now_ms, _key_made_ms(home, now_ms))))
        return round(datetime.fromisoformat(read_own(path).strip()).timestamp() * 1000)
    except (OSError, ValueError) as error:
        raise StoreError(f"the file {path} cannot be used: {error}; remove it to have it written anew") from None


def _key_made_ms(home: Path, now_ms: int) -> int:
    """A hint in folders of versions that did not note their time."""
    path = home / KEY_FILE
    return round(path.stat().st_mtime * 1000) if path.exists() else now_ms


def _written_time(value_ms: int) -> str:
    return datetime.fromtimestamp(value_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _write_new(path: Path, text: str) -> None:
    """Half a key would lock everybody out, and one through a link would be elsewhere."""
    refuse_foreign_link(path)
    write_whole(path, text + "\n")
