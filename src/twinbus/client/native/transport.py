"""The links of a pair on our own engine: one connection to the primary, and one to the secondary."""

from __future__ import annotations

from collections.abc import Callable

from twinbus.client.aio.transport import Probed
from twinbus.client.core.client_state import ClientState
from twinbus.client.core.ping_message import encoded_ping
from twinbus.client.native.backlog import NativeBacklog
from twinbus.client.native.links import NativeLinks
from twinbus.client.sdk.failures import LinkFailed, describe
from twinbus.pairing.sending.failure import Failure
from twinbus.transport.dial import Dial


class NativeTransport:
    """As `Transport` says."""

    def __init__(self, state: ClientState, name: str, after_events: Callable[[], None] = lambda: None) -> None:
        """`name` identifies this process to both namespaces; `after_events` is called when answers were handed on.

        Raises `OptionsError` if a namespace can be reached with the SDK only.
        """
        self._state = state
        self._name = name
        self._after_events = after_events
        attempt_s = state.pair.rules.attempt_s
        self._dials = state.primary.dial(attempt_s), state.secondary.dial(attempt_s)
        self._primary: NativeLinks | None = None
        self._secondary: NativeLinks | None = None
        self._backlog: NativeBacklog | None = None

    def start(self) -> None:
        primary, secondary = self._dials
        self._primary = self._links(primary, self._state.primary_offers)
        self._secondary = self._links(secondary, lambda _offers: None)
        self._backlog = NativeBacklog(self._secondary, self._state.queue_path)

    def _links(self, dial: Dial, on_offers: Callable[[frozenset[str]], None]) -> NativeLinks:
        attempt_s = self._state.pair.rules.attempt_s
        return NativeLinks(dial, self._name, attempt_s, after_events=self._after_events, on_offers=on_offers)

    @property
    def primary(self) -> NativeLinks:
        assert self._primary is not None, "links are opened only after pairing"
        return self._primary

    @property
    def backlog(self) -> NativeBacklog:
        assert self._backlog is not None, "links are opened only after pairing"
        return self._backlog

    async def probe(self, path: str, timeout_s: float, *, sends_ping: bool) -> Probed:
        size = 0
        failure: Failure | None = None
        try:
            self._state.check_side("primary")
            window = await self.primary.open_alone(path, timeout_s)
            try:
                if sends_ping:
                    ping = encoded_ping()
                    size = len(ping)
                    await self.primary.store(window, ping, 0)
            finally:
                self.primary.retire(window)
        except LinkFailed as problem:
            failure = problem.failure
        except Exception as error:  # of any kind: without a result there would be no further ping
            failure = describe(error, sending=False)
        return Probed(size, failure)

    def end_primary(self) -> None:
        if self._primary is not None:
            self._primary.end()

    def end_backlog(self) -> None:
        if self._secondary is not None:
            self._secondary.end()

    def hang_up(self) -> None:
        self.end_primary()
        self.end_backlog()

    async def close(self) -> None:
        for links in (self._primary, self._secondary):
            if links is not None:
                await links.close()

    async def wait_closed(self) -> None:
        """`close` has waited."""
