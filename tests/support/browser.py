"""A headless Chromium for tests, spoken to in its own debugging protocol: what a page shows, says and fetches."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

FLAGS = (
    "--headless",
    "--no-sandbox",  # tests run as root too
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-port=0",
)
START_S, ANSWER_S = 60, 60
EVENTS_KEPT = ("Network.requestWillBeSent", "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")


@dataclass
class Page:
    """One page: what it fetched and what its console said since it was made."""

    socket: aiohttp.ClientWebSocketResponse
    fetched: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, ANSWER_S)

    async def listen(self) -> None:
        async for message in self.socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said.get("result", {"error": said.get("error")}))
            else:
                self._hear(said["method"], said["params"])

    def _hear(self, method: str, event: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.fetched.append(event["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded.set()
        elif method in EVENTS_KEPT:
            self.complaints.append(f"{method}: {event}")

    async def open(self, url: str) -> None:
        """Go there and wait until all of it is there."""
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.ask(f"{domain}.enable")
        self._loaded.clear()
        await self.ask("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), ANSWER_S)

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page."""
        found = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    async def look(self, *, width: int, dark: bool = False) -> None:
        """Show it as wide as this, in the light or in the dark."""
        await self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, file: Path) -> None:
        """All of it as a PNG."""
        found = await self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def a_page(folder: Path) -> AsyncIterator[Page]:
    """An empty page of a browser that keeps its things in `folder`; the browser is gone afterwards."""
    program = shutil.which("chromium")
    assert program is not None, "these tests need a browser: apt-get install chromium"
    process = await asyncio.create_subprocess_exec(
        program,
        *FLAGS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as http, http.ws_connect(await _address(http, folder), max_msg_size=0) as ws:
            page = Page(ws)
            listening = asyncio.create_task(page.listen())
            yield page
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _address(http: aiohttp.ClientSession, folder: Path) -> str:
    """Where the first page listens: the browser writes its port into a file when it is ready."""
    said = folder / "DevToolsActivePort"
    async with asyncio.timeout(START_S):
        while True:
            if said.exists() and (lines := said.read_text().splitlines()):
                async with http.get(f"http://127.0.0.1:{lines[0]}/json/list") as answer:
                    pages = [each for each in await answer.json() if each["type"] == "page"]
                if pages:
                    return str(pages[0]["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)
