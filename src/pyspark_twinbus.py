"""`format("servicebus")` without a call of `register`: Spark looks into modules called `pyspark_...` by itself.

It looks on the driver, among the modules that are installed there or in PYTHONPATH. Where it does not find this one,
as in an archive that came with `--py-files`, call `twinbus.spark.register(spark)`.
"""

from twinbus.spark.source.source import ServiceBusDataSource as DefaultSource

__all__ = ["DefaultSource"]
