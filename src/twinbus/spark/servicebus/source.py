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
from twinbus.spark.servicebus.columns import SPARK_SCHEMA, read_problems, write_problems
from twinbus.spark.servicebus.options import ReadOptions, WriteOptions, read_options, write_options
from twinbus.spark.servicebus.reading import ServiceBusReader, ServiceBusStreamReader
from twinbus.spark.servicebus.writing import ServiceBusStreamWriter, ServiceBusWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ServiceBusDataSource(DataSource):
    """No `pushFilters`: in Spark 4.3 a filter of one query would be applied to others of the same frame."""

    @classmethod
    def name(cls) -> str:
        return "servicebus"

    def schema(self) -> str:
        read_options(self.options)  # asked first: mistakes are told at load(), not when the first task runs
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return ServiceBusReader(schema, self._to_read(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the names are Spark's
        return ServiceBusStreamReader(schema, self._to_read(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return ServiceBusWriter(self._to_write(schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return ServiceBusStreamWriter(self._to_write(schema, overwrite=overwrite))

    def _to_read(self, schema: StructType) -> ReadOptions:
        options = read_options(self.options)
        problems = read_problems(_types(schema))
        if problems:
            raise OptionsError('format("servicebus"): ' + "; ".join(problems))
        return options

    def _to_write(self, schema: StructType, *, overwrite: bool) -> WriteOptions:
        problems, options = [], None
        try:
            options = write_options(self.options)
        except OptionsError as error:
            problems.append(str(error).removeprefix('format("servicebus"): '))
        has_target = options is None or options.entity is not None
        makes_ids = options is None or options.makes_ids
        problems += write_problems(_types(schema), has_target=has_target, makes_ids=makes_ids)
        if overwrite:
            problems.append('messages of a queue cannot be overwritten: use mode("append")')
        if problems or options is None:
            raise OptionsError('format("servicebus"): ' + "; ".join(problems))
        return options


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
