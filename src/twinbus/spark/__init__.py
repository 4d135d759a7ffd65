"""Spark, through PySpark: backlogs drained, messages read and written, what happened to them accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("servicebus")` known to a session. Executors need twinbus installed, or as an archive."""
    from twinbus.spark.source.source import ServiceBusDataSource

    spark.dataSource.register(ServiceBusDataSource)
