"""What it costs the proxy to send a message on: `python -m bench.proxy_sends [--failed-over] [--profile]`.

Without the port of the proxy: messages of 1 KiB are handed to `ProxySends` as its link layer does, a thousand at a time
without an answer, and two served namespaces take them. Prints messages a second, and CPU of this process per message.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.namespaces import QUEUE, ServedNamespace, served_pair
from bench.processes import Cores, bind_to
from twinbus.amqp.message.sections import PropertyField, encode_message
from twinbus.broker.message import Arrival, read_arrival
from twinbus.broker.operations import Done, Refused
from twinbus.client.options import Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.proxy.sending.pair_client import ProxySends

WINDOW = 1_000
BODY = bytes(range(256)) * 4


class Load:
    """Keeps a number of messages on their way until all are stored."""

    def __init__(self, sends: ProxySends, messages: list[tuple[Arrival]]) -> None:
        self._sends, self._messages = sends, messages
        self._sent = self._stored = 0
        self.is_done = asyncio.Event()

    def fill(self) -> None:
        while self._sent < len(self._messages) and self._sent - self._stored < WINDOW:
            self._sent += 1
            self._sends.send(QUEUE, self._messages[self._sent - 1], 0, self._answered)

    def _answered(self, reply: Done | Refused) -> None:
        assert isinstance(reply, Done), reply
        self._stored += 1
        if self._stored == len(self._messages):
            self.is_done.set()
        elif self._sent - self._stored <= WINDOW // 2:  # as a client does that is granted credit anew
            self.fill()


def message(number: int) -> Arrival:
    encoded = encode_message(properties={PropertyField.MESSAGE_ID: f"message-{number:012}"}, data=BODY)
    return read_arrival(encoded, str)


async def measure(
    primary: ServedNamespace,
    secondary: ServedNamespace,
    count: int,
    *,
    failed_over: bool,
    profile: cProfile.Profile | None,
) -> str:
    options = SendAvailabilityPairedNamespaceOptions(
        secondary.namespace, failover_interval=timedelta(0), backlog_queue_count=2, retry=Retry(attempts=1)
    )
    sends = ProxySends(primary.namespace, options)
    await sends.start()
    warm_up = Load(sends, [(message(number),) for number in range(WINDOW)])
    warm_up.fill()
    await warm_up.is_done.wait()
    if failed_over:
        primary.kill()
    load = Load(sends, [(message(number),) for number in range(count)])
    began_s, cpu_s = time.monotonic(), time.process_time()
    if profile is not None:
        profile.enable()
    load.fill()
    await load.is_done.wait()
    if profile is not None:
        profile.disable()
    took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    await sends.stop()
    return f"{count} messages: {count / took_s:,.0f} a second, {cpu_s / count * 1e6:.1f} µs of CPU each"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--failed-over", action="store_true", help="to the backlog: the primary is killed first")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    cores, profile = Cores(), cProfile.Profile() if given.profile else None
    with TemporaryDirectory() as folder, served_pair(Path(folder), cores.broker) as (primary, secondary):
        bind_to(cores.client)
        work = measure(primary, secondary, given.messages, failed_over=given.failed_over, profile=profile)
        print(asyncio.run(work))
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
