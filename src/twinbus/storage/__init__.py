"""Where files are: a local folder, or a URL of an object store or of HDFS.

Everything that keeps ledgers or results uses this, so that all commands take the same places.
"""

from __future__ import annotations

from twinbus.storage.folder import Folder, Lease, Location, SkipFolder, StoredFile
from twinbus.storage.opening import is_url, open_folder

__all__ = ["Folder", "Lease", "Location", "SkipFolder", "StoredFile", "is_url", "open_folder"]
