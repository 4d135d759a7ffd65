"""Real namespaces for tests: on free ports, in this process, gone when the test is over.

With pytest the fixtures are there as soon as twinbus is installed:

    def test_an_order_is_stored(namespace):
        namespace.create_queue("orders")
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client: ...

Elsewhere `LocalNamespace` is a context manager:

    with LocalNamespace("contoso", queues=["orders"]) as namespace: ...

Either can be made to fail, as a whole or in part, from any thread:

    namespace.faults.add("no-send", entities=["orders"], length=timedelta(seconds=30))

pytest imports this module at every start, in projects that may not even use it: the server is imported when the first
namespace starts.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from twinbus.errors import TwinbusError

if TYPE_CHECKING:
    from twinbus.broker.auth.access_rules import AccessRule
    from twinbus.broker.auth.jwt import JwtIssuer
    from twinbus.broker.faults.switch import FaultSwitch
    from twinbus.broker.server import NamespaceServer

Result = TypeVar("Result")

ANSWER_WAIT_S = 30
TRUST_VARIABLES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


class LocalNamespace:
    """A namespace served by a thread of this process. `start` it, or use it in a `with` block."""

    def __init__(
        self,
        name: str = "local",
        *,
        data: str | Path | None = None,
        queues: Iterable[str] = (),
        entities: Path | None = None,
        port: int = 0,
        key: str | None = None,
        rules: Iterable[AccessRule | str] = (),
        jwt_issuers: Iterable[JwtIssuer] = (),
        limits: Mapping[str, float] | None = None,
        ledger: Path | None = None,
        ledger_ship_to: str | None = None,
    ) -> None:
        """Without `data` everything is kept in memory and ends with `stop`. Port 0 picks a free one.

        `rules` are more keys, with fewer rights, as `"reader:Listen"` (see `connection_string_for`); `jwt_issuers` are
        those whose JSON web tokens are believed; `limits` are those of `twinbus serve --limit`, by name. In the folder
        `ledger`, if one is given, is recorded what becomes of messages, and its finished segments are copied to
        `ledger_ship_to`, e.g. `"s3a://bucket/ledger"`. `entities` is a file in the form of the
        official emulator's `Config.json`; what it says of its first namespace is made here.
        """
        self._limits = dict(limits or {})
        self._ledger = ledger
        self._ledger_ship_to = ledger_ship_to
        self.name = name
        self._data = None if data is None else Path(data)
        self._queues = tuple(queues)
        self._entities = entities
        self._port = port
        self._key = key
        self._rules = tuple(rules)
        self._jwt_issuers = tuple(jwt_issuers)
        self._server: NamespaceServer | None = None
        self._reserved: socket.socket | None = None

    @property
    def port(self) -> int:
        return self._running.port

    @property
    def connection_string(self) -> str:
        """For the official clients, and for anything else that takes one."""
        return self._running.connection_string

    def connection_string_for(self, rule_name: str) -> str:
        """The connection string of somebody who holds one of the `rules`' keys."""
        return self._running.connection_string_for(rule_name)

    @property
    def ca_file(self) -> Path | None:
        """What a client has to trust for TLS: `ServiceBusAdministrationClient(..., connection_verify=str(ca_file))`."""
        return self._running.ca_file

    @property
    def faults(self) -> LocalFaults:
        """What is made to fail here, and how to make more fail."""
        return LocalFaults(self._do_faults)

    def create_queue(self, name: str, **settings: Any) -> None:
        """Create a queue; `settings` as the SDK names them, e.g. `lock_duration=timedelta(seconds=5)` or `"PT5S"`.

        The fields of `QueueSettings`, e.g. `lock_ms=5_000`, are understood too.
        """
        from twinbus.broker.admin.fields import FIELDS, settings_of
        from twinbus.broker.entities.settings import QueueSettings

        self._ask(self._running.create_queue(name, settings_of(QueueSettings, FIELDS, settings)))

    def create_topic(self, name: str, *subscriptions: str, **settings: Any) -> None:
        """Create a topic and subscriptions that get all its messages; `settings` as for a queue."""
        from twinbus.broker.admin.fields import TOPIC_FIELDS, settings_of
        from twinbus.broker.core.commands import CreateSubscription, CreateTopic
        from twinbus.broker.entities.settings import QueueSettings, TopicSettings

        self._ask(self._running.administer(CreateTopic(name, settings_of(TopicSettings, TOPIC_FIELDS, settings))))
        for subscription in subscriptions:
            self._ask(self._running.administer(CreateSubscription(name, subscription, QueueSettings())))

    def start(self) -> None:
        """Serve; returns when clients can connect. Raises `TwinbusError` and leaves nothing behind if that fails."""
        from twinbus.broker.admin.entity_file import read_inventory_file
        from twinbus.broker.auth.access_rules import parse_rule
        from twinbus.broker.net.ports import reserve_port
        from twinbus.broker.server import NamespaceServer
        from twinbus.limit_names import with_limits
        from twinbus.options import NamespaceOptions

        if self._server is not None:
            raise TwinbusError(f"namespace {self.name} is running already")
        if self._port == 0 and self._reserved is None:
            self._reserved = reserve_port()  # stays ours through a restart
        entities = () if self._entities is None else next(iter(read_inventory_file(self._entities).values()))
        options = NamespaceOptions(
            name=self.name,
            port=self._port if self._reserved is None else self._reserved.getsockname()[1],
            data=self._data,
            key=self._key,
            queues=self._queues,
            entities=entities,
            rules=tuple([parse_rule(rule) if isinstance(rule, str) else rule for rule in self._rules]),
            jwt_issuers=self._jwt_issuers,
            ledger=self._ledger,
            ledger_ship_to=self._ledger_ship_to,
        )
        server = NamespaceServer(with_limits(options, self._limits))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"twinbus-{self.name}", daemon=True)
        self._thread.start()
        try:
            self._ask(server.start())
        except BaseException:
            self._end_thread()
            self._release_port()
            raise
        self._server = server

    def stop(self) -> None:
        """Stop serving, politely; harmless when it is stopped."""
        self._stop_server()
        self._release_port()

    def _stop_server(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            try:
                self._ask(server.stop())
            finally:
                self._end_thread()

    def restart(self) -> None:
        """Stop and start with the same port, key and data; without a data directory all messages are gone."""
        port, self._key = self._running.port, self._running.key
        self._rules = self._running.rules[1:]  # the first is the one that every namespace has
        self._stop_server()
        if self._reserved is None:
            self._port = port
        self.start()

    def __enter__(self) -> LocalNamespace:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def _running(self) -> NamespaceServer:
        if self._server is None:
            raise TwinbusError(f"namespace {self.name} is not running: start() it or use it in a with block")
        return self._server

    def _ask(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_WAIT_S)

    def _do_faults(self, act: Callable[[FaultSwitch, int], Any]) -> Any:
        server = self._running

        async def act_in_the_loop() -> Any:
            return act(server.switch, server.clock())

        return self._ask(act_in_the_loop())

    def _release_port(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _end_thread(self) -> None:
        self._ask(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class LocalFaults:
    """What is made to fail in a running namespace. The vocabulary is that of `twinbus fault add --help`."""

    def __init__(self, do: Callable[[Callable[[FaultSwitch, int], Any]], Any]) -> None:
        """`do` calls a function with the namespace's switch and time, where that is safe, and returns its result."""
        self._do = do

    def add(
        self,
        fault: str,
        *,
        entities: Iterable[str] | None = None,
        pattern: str | None = None,
        length: timedelta | None = None,
        **parameters: Any,
    ) -> str:
        """Make something fail, from now on, and return the id by which that can be ended.

        Without `entities` or `pattern` it is the whole namespace, without `length` until it is cleared. Parameters are
        those of the fault, times as `timedelta`: `add("slow", delay=timedelta(milliseconds=500))`. Raises
        `OptionsError` with everything that is wrong with them.
        """
        given = {"length": length, **parameters}
        values = dict([_as_value(name, value) for name, value in given.items()])
        values |= {"fault": fault, "pattern": pattern}
        values["entities"] = entities if entities is None or isinstance(entities, str) else list(entities)
        added = self._do(lambda switch, now_ms: switch.add(values, now_ms))
        return str(added["id"])

    def clear(self, fault_id: str | None = None) -> None:
        """End one fault, or all; raises `TwinbusError` if there is no such fault."""
        self._do(lambda switch, now_ms: switch.clear(fault_id, now_ms))

    def list(self) -> Sequence[dict[str, Any]]:
        """The faults in force, the oldest first."""
        found: Sequence[dict[str, Any]] = self._do(lambda switch, now_ms: switch.in_force(now_ms))
        return found


def _as_value(name: str, value: Any) -> tuple[str, Any]:
    """A parameter as the control socket takes it: a length of time in milliseconds, and named so."""
    if isinstance(value, timedelta):
        return f"{name}_ms", round(value / timedelta(milliseconds=1))
    return name, value


def _trusted_by_default() -> list[Path]:
    """The files with certificates that clients of this process trust now."""
    named = [os.environ.get(variable) for variable in TRUST_VARIABLES]
    usual = [ssl.get_default_verify_paths().cafile]
    if find_spec("certifi") is not None:
        import certifi

        usual.append(certifi.where())
    return [Path(file) for file in dict.fromkeys([*named, *usual]) if file is not None and Path(file).is_file()]


class NamespacePair(NamedTuple):
    primary: LocalNamespace
    secondary: LocalNamespace


if find_spec("pytest") is not None:
    import pytest

    @contextmanager
    def _trusted(folder: Path, *namespaces: LocalNamespace) -> Iterator[None]:
        """Meanwhile clients of this process trust these namespaces too, so that a connection string is all they need.

        The administration clients speak TLS only. The sync one (requests) and OpenSSL read the files of these
        variables; aiohttp has read them when it was imported. What is trusted without them stays trusted.
        """
        files = [
            where for where in (*_trusted_by_default(), *[each.ca_file for each in namespaces]) if where is not None
        ]
        bundle = folder / "twinbus-trusted.pem"
        bundle.write_text("\n".join([file.read_text(encoding="utf-8") for file in files]), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            for variable in TRUST_VARIABLES:
                patch.setenv(variable, str(bundle))
            if "aiohttp.connector" in sys.modules:
                context = ssl.create_default_context(cafile=str(bundle))
                context.set_alpn_protocols(["http/1.1"])
                patch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", context, raising=False)
            yield

    @pytest.fixture
    def namespace(tmp_path: Path) -> Iterator[LocalNamespace]:
        """A namespace without queues; its data is left in tmp_path for a look when the test fails."""
        with LocalNamespace(data=tmp_path / "twinbus") as running, _trusted(tmp_path, running):
            yield running

    @pytest.fixture
    def namespace_pair(tmp_path: Path) -> Iterator[NamespacePair]:
        """Two namespaces without queues: the primary `contoso` and the secondary `backup`."""
        data = tmp_path / "twinbus-pair"
        with (
            LocalNamespace("contoso", data=data) as primary,
            LocalNamespace("backup", data=data) as secondary,
            _trusted(tmp_path, primary, secondary),
        ):
            yield NamespacePair(primary, secondary)
