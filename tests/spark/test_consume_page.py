"""What docs/how-to/consume-with-spark.md shows works, in the session that all tests share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from received import received
from spark_backlog import ids_in

from twinbus.spark.source import options
from twinbus.testing import LocalNamespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "consume-with-spark.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_blocks_consume_a_queue_and_replay_its_dead_letters(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalNamespace("contoso", queues=["orders"]) as namespace:
        secret = tmp_path / "secret"
        secret.write_text(namespace.connection_string)
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            client.get_queue_sender("orders").send_messages(
                [ServiceBusMessage("x", message_id=str(n)) for n in range(7)]
            )
            with client.get_queue_receiver("orders") as receiver:
                for message in received(receiver, 2):
                    receiver.dead_letter_message(message, reason="odd")
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        code = "\n".join(blocks).replace("env:TWINBUS_PRIMARY", f"file:{secret}").replace('"/tmp/', f'"{tmp_path}/')
        exec(code, {"spark": spark})
        said = capsys.readouterr().out
        assert "5 messages are out of the queue" in said
        assert "0 dead letters are left" in said
        assert set(ids_in(namespace, "orders")) == {"0", "1"}


def test_every_option_of_consuming_is_on_the_page() -> None:
    assert {name for name in (*options._RECEIVE_ONLY, *options._BROWSE_ONLY) if f"`{name}`" not in PAGE} == set()
