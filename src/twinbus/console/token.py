"""The console's token: made by chance for each run, or kept in a file for its owner only."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from twinbus.errors import OptionsError, StoreError
from twinbus.own_files import check_folder, make_own_folder, read_own, write_whole

TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,200}")


def new_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def kept_token(file: Path) -> str:
    """The token in the file, made if there is none. Raises `OptionsError`."""
    try:
        if not file.exists():
            make_own_folder(file.absolute().parent)
            check_folder(file.absolute().parent)
            write_whole(file, new_token() + "\n")
        token = read_own(file).strip()
    except (OSError, StoreError, UnicodeDecodeError) as error:
        raise OptionsError(f"--token-file {file} cannot be used: {error}") from None
    if not _TOKEN.fullmatch(token):
        raise OptionsError(f"--token-file {file} must hold one line of 32 or more letters, digits, - and _")
    return token
