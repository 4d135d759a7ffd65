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

from twinbus.errors import OptionsError
from twinbus.spark.source.columns import schema_of
from twinbus.spark.source.consuming.consuming_reader import ConsumingStreamReader
from twinbus.spark.source.options import read_options, write_options
from twinbus.spark.source.reader import ServiceBusReader, ServiceBusStreamReader
from twinbus.spark.source.stream_api import ReadMaxRows
from twinbus.spark.source.writer import ServiceBusStreamWriter, ServiceBusWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ServiceBusDataSource(DataSource):
    """No `pushFilters`: in Spark 4.3 a filter of one query would be applied to others of the same frame. Spark does not
    tell a source in Python which columns are selected; the option `columns`, or a schema, does.
    """

    @classmethod
    def name(cls) -> str:
        return "servicebus"

    def schema(self) -> str:
        # Called first: mistakes are reported at load(), not when the first task runs.
        return schema_of(read_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ServiceBusReader(schema, read_options(self.options, _types(schema), is_batch=True))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the names are Spark's
        options = read_options(self.options, _types(schema), is_batch=False)
        if options.staging is None:
            return ServiceBusStreamReader(schema, options)
        if ReadMaxRows is None:
            raise OptionsError("mode=receive needs PySpark 4.2 or newer: older ones do not say where a stream has been")
        return ConsumingStreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return ServiceBusWriter(write_options(self.options, _types(schema), overwrites=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return ServiceBusStreamWriter(write_options(self.options, _types(schema), overwrites=overwrite))


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
