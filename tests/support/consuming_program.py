"""A stream that consumes a queue until it is empty, as a program that can be killed and started again.

    python consuming_program.py FOLDER QUEUE MASTER PER_TRIGGER

Each batch replaces a folder of its number below FOLDER/out, so a batch that is run again counts once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from twinbus.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECRET = "TWINBUS_CONSUMED"
TASKS = 4


def main(folder: Path, queue: str, master: str, per_trigger: int) -> None:
    spark = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)

    def keep(batch: DataFrame, number: int) -> None:
        batch.select("message_id").write.mode("overwrite").text(f"{folder}/out/{number:06}")

    frame = (
        spark.readStream.format("servicebus")
        .option("servicebus.credential", f"env:{SECRET}")
        .option("mode", "receive")
        .option("stagingLocation", f"{folder}/staging")
        .option("maxMessagesPerTrigger", per_trigger)
        .option("maxMessagesPerPartition", per_trigger // TASKS)
        .option("columns", "message_id")
        .load(queue)
    )
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
