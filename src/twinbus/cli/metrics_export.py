"""The metrics of a command, for Prometheus: on a port, or in a file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from twinbus.cli.output import note
from twinbus.errors import OptionsError, TwinbusError

if TYPE_CHECKING:
    from twinbus.client.reporting.telemetry import Families, Family
    from twinbus.syphon import Progress

PORT_MAX = 65_535


class PairNames(NamedTuple):
    """What the numbers are labelled with."""

    primary: str
    secondary: str


class ListenAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(
    text: str, option: str = "--metrics", example: int = 9464, *, any_free: bool = False
) -> ListenAddress:
    """`9464` or `0.0.0.0:9464`; without a host, only this machine can connect. Raises `OptionsError`.

    `any_free`: port 0 is fine.
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and (0 if any_free else 1) <= int(port) <= PORT_MAX):
        zero = " (0 picks a free one)" if any_free else ""
        raise OptionsError(
            f"{option} takes a port, e.g. {example}{zero}, or host and port, e.g. 0.0.0.0:{example}; got {text!r}"
        )
    return ListenAddress(host.strip("[]") or "127.0.0.1", int(port))


def families(progress: Progress, names: PairNames) -> Families:
    """The metrics of a syphon and of its looks into the backlog, without those of a pairing."""
    from twinbus.client.core.own_syphon import status_of, with_look
    from twinbus.client.reporting.status import SecondaryStatus, Status
    from twinbus.client.reporting.syphon_metrics import BACKLOG_METRICS, SYPHON_METRICS
    from twinbus.client.reporting.telemetry import Families

    status = Status(
        at=datetime.now(UTC),
        primary=names.primary,
        secondary=names.secondary,
        secondary_status=with_look(SecondaryStatus(), progress.backlog),
        syphon=status_of(progress),
    )
    return Families([(1, status)], (*BACKLOG_METRICS, *SYPHON_METRICS))


class MetricsSource(Protocol):
    """What `prometheus_client` asks for numbers."""

    def collect(self) -> Iterator[Family]: ...


@contextmanager
def serve_source(address: ListenAddress | None, source: MetricsSource) -> Iterator[None]:
    """Let Prometheus scrape the numbers while the block runs. Raises `TwinbusError` if the port cannot be had."""
    if address is None:
        yield
        return
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(address.port, address.host, source)
    except (OSError, OverflowError) as error:
        raise TwinbusError(f"--metrics: cannot listen on {address}: {error}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class LiveMetrics:
    """What Prometheus asks for, as it is when it asks."""

    def __init__(self, look: Callable[[], Progress], names: PairNames) -> None:
        self._look = look
        self._names = names

    def collect(self) -> Iterator[Family]:
        return families(self._look(), self._names).collect()


class MetricsTextFile:
    """Numbers in a file, for the textfile collector of node_exporter: always whole, and left there at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._has_complained = False

    def write(self, source: MetricsSource) -> None:
        from prometheus_client import generate_latest

        text = generate_latest(source)
        try:
            self._write(text)
        except OSError as error:  # the work goes on
            if not self._has_complained:
                note(f"{self._file} cannot be written: {error.strerror}")
                self._has_complained = True

    def _write(self, text: bytes) -> None:
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            draft.unlink(missing_ok=True)  # a link must not be written through
            draft.touch(exist_ok=False)
            draft.write_bytes(text)
            draft.replace(self._file)
        finally:
            draft.unlink(missing_ok=True)


class MetricsFile(MetricsTextFile):
    """The numbers of a syphon in such a file."""

    def __init__(self, file: Path, names: PairNames) -> None:
        super().__init__(file)
        self._names = names

    def show(self, progress: Progress) -> None:
        self.write(families(progress, self._names))
