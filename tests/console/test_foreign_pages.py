"""Pages of others, open in the same browser, learn nothing and change nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from console_crowd import TOKEN, Crowd, crowd, entity, verdict
from playwright.sync_api import Browser

pytestmark = [pytest.mark.console, pytest.mark.timeout(300)]

TRIES = """async (address) => {
  const results = {};
  const attempt = async (name, run) => {
    try { results[name] = await run(); } catch { results[name] = "refused"; }
  };
  const send = (more) => fetch(address + "api/do", { method: "POST", credentials: "include", body, ...more });
  const body = JSON.stringify({ action: "fault.clear", arguments: { side: "primary" } });
  await attempt("read", async () => (await fetch(address + "api/session", { credentials: "include" })).status);
  await attempt("blind", async () => (await send({ mode: "no-cors" })).type);
  await attempt("proof", async () => (await send({ headers: { "X-Twinbus-Proof": "x" } })).status);
  await attempt("stream", () => new Promise((done) => {
    const stream = new EventSource(address + "api/stream", { withCredentials: true });
    stream.onmessage = stream.onopen = () => done("open");
    stream.onerror = () => { stream.close(); done("refused"); };
  }));
  await attempt("frame", () => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.onload = () => { try { done(frame.contentDocument ? "empty" : "opaque"); } catch { done("opaque"); } };
    frame.src = address;
    document.body.append(frame);
  }));
  return results;
}"""


class Foreign(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>foreign</title><p>foreign")

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def foreign() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def console() -> Iterator[Crowd]:
    with crowd(allows_changes=True) as served:
        served.put("verdict", verdict())
        served.put("entities", {"orders": entity("orders")})
        yield served


def test_a_foreign_page_can_neither_read_nor_change(browser: Browser, console: Crowd, foreign: str) -> None:
    """It is of the same site (another port of this machine), which is the worst case: cookies are sent along."""
    context = browser.new_context()
    ours = context.new_page()
    ours.goto(console.entrance)
    ours.wait_for_selector("#entities tbody tr")
    page = context.new_page()
    page.goto(foreign)
    found = page.evaluate(TRIES, console.server.address)
    assert (found["read"], found["proof"], found["stream"]) == ("refused", "refused", "refused")
    assert found["frame"] in ("opaque", "refused")
    assert not [each for each in console.state.section("events").values() if each["kind"] == "done"]
    assert TOKEN not in ours.url, "the token leaves the address"
    assert ours.evaluate("document.cookie") == ""
    context.close()


def test_without_the_token_there_is_nothing_but_a_form(browser: Browser, console: Crowd) -> None:
    page = browser.new_context().new_page()
    page.goto(console.server.address)
    page.get_by_label("Token").fill("wrong" * 10)
    page.get_by_role("button", name="Enter").click()
    page.get_by_text("that token is wrong").wait_for()
    assert "orders" not in page.content()
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#entities tbody tr")
    page.context.close()
