"""Follows docs/tutorial.md as its reader does: two terminals, every block in its order, every output compared."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from doc_blocks import DOCS, Block, blocks_of
from free_ports import free_port

WAIT_S = 240.0
PLACE = re.compile(r"^\d+ (primary|contoso/x-servicebus-transfer/\d+)$", re.MULTILINE)
END = "@@ end of block"
FAILED = "@@ failed with "


class Terminal:
    """A shell that keeps its folder and variables from block to block."""

    def __init__(self, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["env", "--default-signal=INT", "bash"],  # in the background of a script Ctrl-C would be ignored
            cwd=folder,
            env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TWINBUS_"))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.output = ""
        self.act_as: Callable[[str | None], None] = lambda _role: None
        """Take on the keys of a role; None: keys that may do everything."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.type(f"trap 'echo \"{FAILED}$?\"' ERR")

    def type(self, code: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(code + "\n")
        self._shell.stdin.flush()

    def run(self, block: Block, within_s: float = WAIT_S) -> str:
        """What a block printed, once it has ended; commands that fail say so in a comment: `# exit code 1`."""
        begin, ends = len(self.output), self.output.count(END)
        self.type(f"{block.code}echo '{END}'")
        wait_until(lambda: self.output.count(END) > ends, f"{block} has ended", within_s)
        printed = self.output[begin:]
        failed = re.findall(FAILED + r"(\d+)", printed)
        assert failed == re.findall(r"# exit code (\d+)", block.code), f"{block}: {printed}"
        return printed

    def interrupt(self) -> None:
        """Ctrl-C: for the program in the foreground. The shell itself only notes it."""
        os.killpg(self._shell.pid, signal.SIGINT)

    def close(self) -> None:
        """End the shell and everything that it still runs."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.wait(WAIT_S)
        self._reader.join(WAIT_S)

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self.output += line


class Reader:
    """Somebody who follows the tutorial in a folder. `install` is done in place of its first block."""

    def __init__(self, folder: Path, install: Callable[[Block, Terminal], None]) -> None:
        self.folder = folder
        self._install = install
        self._ports = {"5672": str(free_port()), "5673": str(free_port())}
        self.terminals = {"1": Terminal(folder), "2": Terminal(folder)}
        self._printed = ""
        self.counted = ""
        """What the comparison of sent and received printed."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for terminal in self.terminals.values():
            terminal.close()

    def follow(self) -> None:
        """Do everything the page says."""
        first, *others = blocks_of(DOCS / "tutorial.md")
        self._install(first, self.terminals["1"])
        for block in others:
            self._do(block)

    def _do(self, block: Block) -> None:
        if block.marks.get("before") == "Ctrl-C in terminal 2":
            self.terminals["2"].interrupt()
        if block.language == "python":
            (self.folder / block.marks["file"]).write_text(block.code, encoding="utf-8")
        elif block.language == "text":
            self._compare(block)
        elif block.marks.get("terminal") == "2":
            self.terminals["2"].type(block.code)
        else:
            self._printed = self.terminals["1"].run(self._with_free_ports(block))

    def _with_free_ports(self, block: Block) -> Block:
        return block._replace(code=re.sub(r"\b567[23]\b", lambda port: self._ports[port[0]], block.code))

    def _compare(self, block: Block) -> None:
        """The shown output is that of the second terminal, as soon as it is there, or of the block before it."""
        if PLACE.search(block.code):
            where = _last_place(block.code)
            sees = self.terminals["2"]
            wait_until(lambda: _last_place(sees.output) == where, f"sends go to the {where}: {sees.output[-400:]}")
            return
        assert {_without_numbers(line) for line in block.code.splitlines()} <= {
            _without_numbers(line) for line in self._printed.splitlines()
        }, f"{block}: {self._printed}"
        self.counted = self._printed


def wait_until(it_is_so: Callable[[], bool], what: str, within_s: float = WAIT_S) -> None:
    """Returns when it is so; fails when it takes too long."""
    deadline = time.monotonic() + within_s
    while not it_is_so():
        assert time.monotonic() < deadline, f"not seen in {within_s:.0f} s: {what}"
        time.sleep(0.05)


def _last_place(output: str) -> str:
    places = PLACE.findall(output)
    return "nowhere" if not places else "primary" if places[-1] == "primary" else "backlog"


def _without_numbers(line: str) -> str:
    return re.sub(r"twice: .*", "twice:", re.sub(r"\d+", "#", line))
