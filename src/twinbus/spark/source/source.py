"""The source as Spark knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from twinbus.spark.source.columns import SPARK_SCHEMA
from twinbus.spark.source.options import read_options, write_options
from twinbus.spark.source.reader import ServiceBusReader, ServiceBusStreamReader
from twinbus.spark.source.writer import ServiceBusStreamWriter, ServiceBusWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ServiceBusDataSource(DataSource):
    """No `pushFilters`: in Spark 4.3 a filter of one query would be applied to others of the same frame."""

    @classmethod
    def name(cls) -> str:
        return "servicebus"

    def schema(self) -> str:
        read_options(self.options)  # called first: mistakes are reported at load(), not when the first task runs
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return ServiceBusReader(schema, read_options(self.options, _types(schema), is_batch=True))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the names are Spark's
        return ServiceBusStreamReader(schema, read_options(self.options, _types(schema)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return ServiceBusWriter(write_options(self.options, _types(schema), overwrites=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return ServiceBusStreamWriter(write_options(self.options, _types(schema), overwrites=overwrite))


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
