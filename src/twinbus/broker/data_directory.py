"""The directory of a namespace: its store and its keys, readable by their owner only."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from twinbus.errors import StoreError
from twinbus.own_files import check_folder, make_own_folder, read_own, refuse_foreign_link, write_whole
from twinbus.units import offset_time, parse_time_ms, time_of

STORE_FILE = "store.sqlite"
KEY_FILE = "key"
RULE_KEYS_FILE = "rule-keys.json"
CREATED_FILE = "created"


def make_namespace_directory(data: Path, name: str) -> Path:
    """Made if it is missing; raises `StoreError` if it cannot be written, or others can write there."""
    directory = data / name.lower()
    try:
        make_own_folder(directory)
        check_folder(data)
        check_folder(directory, must_be_ours=True)
    except OSError as error:
        raise StoreError(f"the data directory {directory} cannot be made: {error.strerror}") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StoreError(f"the data directory {directory} cannot be written: permission denied")
    return directory


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode("ascii")


def namespace_key(directory: Path) -> str:
    """The namespace's own key: made at its first start and kept."""
    path = directory / KEY_FILE
    try:
        if not path.exists():
            _write_new(path, new_key())
        key = read_own(path).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"the key file {path} cannot be used: {error}") from None
    if not key:
        raise StoreError(f"the key file {path} is empty: remove it to get a new key")
    return key


def rule_keys(directory: Path, names: Sequence[str]) -> list[str]:
    """A key for each of these rules, made at first use and kept, also while a rule is not in use."""
    path = directory / RULE_KEYS_FILE
    try:
        known = json.loads(read_own(path)) if path.exists() else {}
        keys = {str(name): str(key) for name, key in known.items() if key}
        missing = {name: new_key() for name in names if name not in keys}
        if missing:
            _write_new(path, json.dumps(keys | missing, indent=1))
    except (OSError, ValueError, AttributeError) as error:
        raise StoreError(f"the key file {path} cannot be used: {error}") from None
    return [(keys | missing)[name] for name in names]


def creation_time_ms(directory: Path, now_ms: int) -> int:
    """When the namespace was made: at its first start."""
    path = directory / CREATED_FILE
    try:
        if not path.exists():
            _write_new(path, offset_time(time_of(min(now_ms, _key_made_ms(directory, now_ms))), "milliseconds"))
        return parse_time_ms(read_own(path).strip())
    except (OSError, ValueError) as error:
        raise StoreError(f"the file {path} cannot be used: {error}; remove it to have it written anew") from None


def _key_made_ms(directory: Path, now_ms: int) -> int:
    """For directories of versions that did not keep the time."""
    path = directory / KEY_FILE
    return round(path.stat().st_mtime * 1000) if path.exists() else now_ms


def _write_new(path: Path, text: str) -> None:
    """Half a key would lock everybody out, and one through a link would be elsewhere."""
    refuse_foreign_link(path)
    write_whole(path, text + "\n")
