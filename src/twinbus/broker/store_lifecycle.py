"""What a namespace does when its store fails, and when it closes: the same with a port and without one."""

from __future__ import annotations

import asyncio
import logging

from twinbus.amqp.codec.outcomes import Error
from twinbus.broker.core.commit_gate import CommitGate
from twinbus.broker.net.amqp_server import AmqpServer
from twinbus.broker.scheduler import Scheduler
from twinbus.broker.store.api import Store

RECOVERY_PAUSE_S = 1.0


async def recover_store(gate: CommitGate, owner: str, logger: logging.Logger) -> None:
    """Try again until the store can be used; `owner` is named in the log."""
    while gate.failure is not None:
        await asyncio.sleep(RECOVERY_PAUSE_S)
        try:
            await asyncio.to_thread(gate.recover)
        except Exception as error:  # of any kind: go on trying
            logger.warning("%s still cannot use its store: %s", owner, error)
    logger.info("%s works again", owner)


async def close_store(store: Store, scheduler: Scheduler, amqp: AmqpServer, reason: str) -> None:
    """Write and answer what was accepted, then close all connections with this reason."""
    scheduler.stop()
    amqp.stop_reading()
    await asyncio.to_thread(store.close)
    await asyncio.sleep(0)  # let the store's last reports be handled
    scheduler.flush()
    amqp.close_connections(Error("amqp:connection:forced", reason))
    await amqp.wait_closed()
