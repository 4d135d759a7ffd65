"""A connection to a namespace for code without an event loop: it lives on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from twinbus.errors import TwinbusError
from twinbus.pairing.sending.failure import Failure
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import Dial
from twinbus.transport.failures import ConnectionFailed
from twinbus.transport.links.peek import peek

Result = TypeVar("Result")
ANSWER_S_MAX = 3_600


class QueueUnreachable(TwinbusError):
    """A queue or a namespace did not answer, or refused us; `failure` says why."""

    def __init__(self, text: str, failure: Failure) -> None:
        super().__init__(text)
        self.failure = failure

    def __reduce__(self) -> tuple[type[QueueUnreachable], tuple[str, Failure]]:
        # Spark pickles exceptions between its processes, and the error in the failure may not allow that.
        failure = Failure(self.failure.kind, self.failure.text, self.failure.condition)
        return QueueUnreachable, (str(self), failure)


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result, or what the work raised. The work limits its own time; this is only the last limit."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_S_MAX)

    def close(self) -> None:
        """End the thread; may be called again."""
        if self._loop.is_closed():
            return
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class QueueBrowser:
    """Peeks into queues. Use it in a `with` block, or `close` it.

    The connection is opened when it is first needed, and again when it was lost. All methods raise `QueueUnreachable`.
    """

    def __init__(self, dial: Dial, attempt_s: float) -> None:
        self._dial = dial
        self._attempt_s = attempt_s
        self._connection: NamespaceConnection | None = None
        self._loop = LoopThread("twinbus-browser")

    def __enter__(self) -> QueueBrowser:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """May be called again."""
        if not self._loop.is_closed and self._connection is not None:
            self._loop.run(self._connection.close())
        self._loop.close()

    def peek(self, path: str, from_sequence: int, most: int) -> list[bytes]:
        """Up to `most` messages from a sequence number on, in their order."""
        return self.ask(path, lambda connection: peek(connection, path, from_sequence, most))

    def ask(self, what: str, question: Callable[[NamespaceConnection], Awaitable[Result]]) -> Result:
        """The answer to a question that needs the connection; `what` is its subject in errors."""
        return self.run(what, lambda: self._ask(question))

    def ask_all(
        self, paths: Sequence[str], question: Callable[[NamespaceConnection, str], Awaitable[Result]]
    ) -> dict[str, Result]:
        """The answer for each path, all asked at once; the first failure only when nothing is under way any more."""

        async def gather(connection: NamespaceConnection) -> list[Result]:
            found = await asyncio.gather(*[question(connection, path) for path in paths], return_exceptions=True)
            for each in found:
                if isinstance(each, BaseException):
                    raise each
            return [each for each in found if not isinstance(each, BaseException)]

        return dict(zip(paths, self.ask(", ".join(paths[:3]), gather), strict=True))

    def run(self, what: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of work that opens a connection of its own."""
        try:
            return self._loop.run(work())
        except ConnectionFailed as error:
            where = f"{self._dial.hostname or self._dial.host}:{self._dial.port}"
            raise QueueUnreachable(f"{what} of {where}: {error.failure}", error.failure) from None

    async def _ask(self, question: Callable[[NamespaceConnection], Awaitable[Result]]) -> Result:
        is_old = self._connection is not None
        try:
            return await question(await self._connected())
        except ConnectionFailed:
            if not is_old or (self._connection is not None and self._connection.is_open):
                raise
        return await question(await self._connected())

    async def _connected(self) -> NamespaceConnection:
        if self._connection is None or not self._connection.is_open:
            connection = NamespaceConnection(self._dial, attempt_s=self._attempt_s)
            await connection.open()
            self._connection = connection
        return self._connection
