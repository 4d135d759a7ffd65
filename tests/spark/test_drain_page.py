"""What docs/how-to/drain-with-spark.md shows works, in the session that all tests share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from spark_backlog import ids_in

from twinbus.spark.source import columns, options
from twinbus.testing import LocalNamespace

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "drain-with-spark.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_blocks_about_queues_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalNamespace("contoso", queues=["orders", "copy"]) as namespace:
        secret = tmp_path / "secret"
        secret.write_text(namespace.connection_string)
        with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("42", message_id="1", subject="new"))
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        code = "\n".join(blocks).replace("env:TWINBUS_PRIMARY", f"file:{secret}")
        exec(code, {"spark": spark})
        assert "new" in capsys.readouterr().out
        assert ids_in(namespace, "copy") == {"1": 1}


def test_every_option_and_column_is_on_the_page() -> None:
    """Those of consuming have a page of their own."""
    names = {name for group in (options._READ, options._WRITE, options._BOTH) for name in group}
    names -= {*options._RECEIVE_ONLY}
    assert {name for name in [*names, *columns.COLUMNS] if f"`{name}`" not in PAGE} == set()
