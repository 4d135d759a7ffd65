"""Opens a folder by its path or URL."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from twinbus.errors import OptionsError
from twinbus.storage.folder import Folder, Location
from twinbus.storage.local_folder import LocalFolder
from twinbus.storage.url_folder import KINDS, UrlFolder

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_SECRETS = re.compile(r"^[^:]+://[^/]*:[^/]*@|[?#]")
HOST_BY_DEFAULT = ("hdfs",)
"""Without a host they are where the settings of the machine say."""


def is_url(location: Location) -> bool:
    """Whether this is a URL rather than a path; `file://` is one, too."""
    return isinstance(location, str) and _SCHEME.match(location) is not None


def open_folder(location: Location) -> Folder:
    """The folder at a path or URL; it does not have to exist. Nothing is connected to before it is used.

    The package that reaches such URLs takes credentials and addresses from its usual environment variables, e.g.
    AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL. Raises `OptionsError` for a URL that cannot be used, or if the package is
    missing.
    """
    if location == "":
        raise OptionsError("an empty text is not a place: give a path or a URL")
    scheme = _SCHEME.match(location) if isinstance(location, str) else None
    if scheme is None:
        return LocalFolder(Path(location))
    name = scheme[1].lower()  # other packages know it in small letters only
    url = f"{name}{str(location)[len(name) :]}"
    if name == "file":
        return LocalFolder(_path_of(url))
    if name not in KINDS:
        instead = f"give a path, or a URL with {', '.join(KINDS)} or file"
        if name == "dbfs":
            instead = f"give the path where Databricks mounts it, e.g. {_mounted(url)}"
        raise OptionsError(f"{name}:// is not a place that ledgers can be kept in: {instead}")
    if _SECRETS.search(url):
        raise OptionsError(
            f"a {name}:// URL must not have a password or a query in it, where others could read them: credentials "
            "come from the environment"
        )
    if name in HOST_BY_DEFAULT and "://" not in url:
        url = url.replace(":/", ":///", 1)  # Hadoop writes both
    parts = urlsplit(url)
    if not parts.netloc and (name not in HOST_BY_DEFAULT or not parts.path.strip("/")):
        raise OptionsError(f"{url!r} does not say which bucket, container or host: write {name}://NAME/path")
    return UrlFolder(url.rstrip("/"))


def _mounted(url: str) -> str:
    path = urlsplit(url).path
    return path if path.startswith("/Volumes/") else f"/dbfs{path}"


def _path_of(url: str) -> Path:
    """Hadoop writes `file:/a`, others `file:///a` or `file://localhost/a`."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise OptionsError(f"{url!r} is not a folder of this machine: write file:///path, or the path alone")
    return Path(unquote(parts.path))
