"""Links of a connection: attach, deliveries, settlement, `$cbs`, `$management`. They ask a back end. No I/O."""
