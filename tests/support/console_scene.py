"""A pair of real namespaces, a console for it in a process of its own, and a browser that looks at it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from axe_playwright_python.sync_playwright import Axe
from json_rules import broken_rules
from playwright.sync_api import Browser, Page, Playwright, sync_playwright
from served import WAIT_S, Served

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE_MS = WAIT_S * 1000


class ConsoleProcess:
    """`twinbus console` for a pair; started again it has the same port and token."""

    def __init__(self, primary: str, secondary: str, folder: Path, *options: str) -> None:
        self._environment = {**os.environ, "TWINBUS_PRIMARY": primary, "TWINBUS_SECONDARY": secondary}
        self._options = ("--every", "2s", "--timeout", "2s", "--token-file", str(folder / "token"), *options)
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.entrance = ""

    def start(self) -> None:
        command = [sys.executable, "-m", "twinbus", "console", "--port", str(self.port), "--json", *self._options]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=self._folder, env=self._environment
        )
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline())
        assert list(broken_rules(ready)) == []
        self.port, self.entrance = ready["port"], ready["console"]

    def suspend(self) -> None:
        """It answers nothing, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def address(self) -> str:
        return self.entrance.partition("#")[0]

    @property
    def token(self) -> str:
        return self.entrance.partition("#")[2]

    def __enter__(self) -> ConsoleProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


@contextmanager
def pair_of_namespaces(folder: Path, queues: Sequence[str] = ("orders", "invoices")) -> Iterator[tuple[Served, Served]]:
    named = [word for queue in queues for word in ("--queue", queue)]
    with Served("contoso", folder / "data", *named) as primary, Served("backup", folder / "data") as secondary:
        yield primary, secondary


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = start_chromium(playwright)
        try:
            yield opened
        finally:
            opened.close()


def start_chromium(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS])


def open_page(opened: Browser, console: ConsoleProcess, *, width: int = 1440, height: int = 1000) -> Page:
    """A page that has been let in."""
    page = opened.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(console.entrance)
    page.wait_for_selector("#verdict-at time")
    return page


def serious_on(page: Page) -> list[tuple[str, str]]:
    """What axe finds on the page that keeps somebody out: the rule, and an element."""
    found = Axe().run(page).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in serious]


def run_command(primary: str, secondary: str, folder: Path, *arguments: str) -> str:
    """`twinbus` with these arguments, for this pair; what it printed."""
    environment = {**os.environ, "TWINBUS_PRIMARY": primary, "TWINBUS_SECONDARY": secondary}
    command = [sys.executable, "-m", "twinbus", *arguments]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def start_command(primary: str, secondary: str, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The same, running until the end of the block."""
    environment = {**os.environ, "TWINBUS_PRIMARY": primary, "TWINBUS_SECONDARY": secondary}
    process = subprocess.Popen(
        [sys.executable, "-m", "twinbus", *arguments], env=environment, cwd=folder, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(WAIT_S)
