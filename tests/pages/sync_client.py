"""Makes the client for threads (`src/twinbus/client/sync`) of the client for tasks (`src/twinbus/client/aio`).

    python -m pages.sync_client            write them
    python -m pages.sync_client --check    exit with 1 if one is stale

Words are replaced, and ruff puts imports in order. Three comments direct it:

    link.end_call()  # sync: link.busy_until = None     the sync file has the line after the colon instead
    # sync: self._taken_by = caller()                   only the sync file has this line
    self._lock.release()  # aio only                    only the aio file has this line

What really differs between threads and tasks (`concurrency`, `links`, `timers`, `board_runner`, `syphon_runner`) is
written by hand in both folders, with the same names.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "src" / "twinbus" / "client"
FILES = (
    *(
        "backlog_pool",
        "client",
        "flow_driver",
        "pair_runner",
        "provisioner",
        "receivers",
        "sdk_transport",
        "sender",
        "sides",
    ),
    "transport",
)

HEADER = """\
# Generated from client/aio/{name}.py by tests/pages/sync_client.py: edit that file, then run `make pages`.
"""

REPLACED = {
    r"an `async with` block": "a `with` block",
    r"\basync (def|with|for)\b": r"\1",
    r"\bawait ": "",
    r"\bAwaitable\[([^\[\]]*)\]": r"\1",
    r"Awaitable, ": "",
    r"\bAsyncIterator\b": "Iterator",
    r"\bAsyncItemPaged\b": "ItemPaged",
    r"\basynccontextmanager\b": "contextmanager",
    r"\b__aenter__\b": "__enter__",
    r"\b__aexit__\b": "__exit__",
    r"\banext\b": "next",
    r"\bazure\.core\.async_paging\b": "azure.core.paging",
    r"\bazure\.servicebus\.aio\b": "azure.servicebus",
    r"\btwinbus\.client\.aio\b": "twinbus.client.sync",
    r"\bAioEventLog\b": "EventLog",
    r"\bAioHookedReceiver\b": "HookedReceiver",
    r"\bAioCallback\b": "Callback",
    r"\baio_client\b": "sync_client",
    r"\baio_admin_client\b": "admin_client",
    r"Tasks of one event loop": "Threads",
    r"\bTasks\b": "Threads",
    r"\btasks\b": "threads",
    r"\btask\b": "thread",
}
OTHER_LINE = re.compile(r"^(\s*).*# sync: (.*)$")
NO_LINE = re.compile(r"# aio only$")


def sync_text(name: str) -> str:
    """What the sync file of this name has to be."""
    lines = (CLIENT / "aio" / f"{name}.py").read_text(encoding="utf-8").splitlines()
    text = HEADER.format(name=name) + "\n".join(_sync_line(line) for line in lines if not NO_LINE.search(line)) + "\n"
    file = CLIENT / "sync" / f"{name}.py"
    text = _ruff("check", "--quiet", "--select", "I,F401,SIM117", "--fix", "--exit-zero", file=file, text=text)
    return _ruff("format", "--quiet", file=file, text=text)


def _sync_line(line: str) -> str:
    line = OTHER_LINE.sub(r"\1\2", line)
    for pattern, replacement in REPLACED.items():
        line = re.sub(pattern, replacement, line)
    return line


def _ruff(*how: str, file: Path, text: str) -> str:
    command = [str(Path(sys.executable).parent / "ruff"), *how, "--stdin-filename", str(file), "-"]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return done.stdout


def stale() -> list[str]:
    """The sync files that are not what their aio files make them."""
    files = {name: CLIENT / "sync" / f"{name}.py" for name in FILES}
    return [name for name, file in files.items() if not file.exists() or file.read_text("utf-8") != sync_text(name)]


def main() -> None:
    names = stale()
    if sys.argv[1:] == ["--check"]:
        if names:
            sys.exit(f"stale in src/twinbus/client/sync: {', '.join(names)}: run make pages")
        return
    for name in names:
        (CLIENT / "sync" / f"{name}.py").write_text(sync_text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
