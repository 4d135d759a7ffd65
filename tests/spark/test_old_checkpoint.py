"""A stream of format("servicebus") that version 0.1.0 began."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from version_0_1 import copied

from twinbus.spark import register
from twinbus.testing import LocalNamespace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_an_old_stream_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    data, checkpoint, secret = copied("data", tmp_path), copied("checkpoint", tmp_path), tmp_path / "secret"
    register(spark)
    with LocalNamespace("contoso", data=data) as contoso:
        secret.write_text(contoso.connection_string)
        assert _read(spark, checkpoint, "events", secret, tmp_path) == {"e-6", "e-7", "e-8", "e-9"}
        assert _read(spark, checkpoint, "events", secret, tmp_path) == set(), "nor is anything read twice"


def _read(spark: SparkSession, checkpoint: Path, queue: str, secret: Path, folder: Path) -> set[str]:
    """The ids that a run of the stream reads."""
    found: set[str] = set()
    frame = spark.readStream.format("servicebus").option("servicebus.credential", f"file:{secret}").load(queue)
    query = (
        frame.select("message_id")
        .writeStream.foreachBatch(lambda batch, _number: found.update(row[0] for row in batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found
