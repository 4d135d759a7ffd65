"""What a measurement needs from Debian: installed when it is missing, or unpacked where nothing is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path


def need(*packages: str) -> None:
    """Have these packages installed afterwards; ends the program with one line when that is not possible."""
    missing = [package for package in packages if version_of(package) is None]
    if missing:
        print(f"bench: installing {' '.join(missing)} from Debian", file=sys.stderr)
        _apt_get("update", "-qq")
        _apt_get("install", "-y", "-qq", "--no-install-recommends", *missing)


def version_of(package: str) -> str | None:
    """The version of an installed package; None if it is not."""
    query = ("dpkg-query", "--show", "--showformat=${db:Status-Abbrev}${Version}", package)
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        raise SystemExit(
            "bench: needs Debian or a system made of it: the load client and RabbitMQ come from there"
        ) from None
    return found[3:] if found.startswith("ii ") else None


def unpacked(package: str, folder: Path) -> Path:
    """The files of a package below a folder, without installing it: nothing is started, no user is made."""
    target = folder / package
    if not target.exists():
        print(f"bench: unpacking {package} from Debian into {folder.name}/", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        _run(("apt-get", "download", "-qq", package), folder)
        archive = max(folder.glob(f"{package}_*.deb"))
        partial = folder / f"{package}.partial"
        _run(("dpkg", "--extract", str(archive), str(partial)), folder)
        archive.unlink()
        partial.rename(target)
    return target


def dependencies(package: str, prefix: str) -> list[str]:
    """The packages with such names that a package depends on."""
    said = _run(("apt-cache", "depends", package)).split()
    return [after for word, after in pairwise(said) if "Depends:" in word and after.startswith(prefix)]


def _apt_get(*arguments: str) -> None:
    become = () if os.geteuid() == 0 else ("sudo", "-n")
    _run((*become, "apt-get", *arguments))


def _run(command: tuple[str, ...], folder: Path | None = None) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise SystemExit(f"bench: {command[0]} is missing") from None
    except subprocess.CalledProcessError as error:
        reason = next((line for line in reversed(error.stderr.splitlines()) if line.strip()), "no reason given")
        raise SystemExit(f"bench: {' '.join(command[:3])} ... failed: {reason}") from None
    return done.stdout
