"""The rules of subscriptions: SQL filters and actions (docs/reference/sql-filters.md), and correlation filters."""

from twinbus.namespace.sql.actions import Action, Changes, compile_action
from twinbus.namespace.sql.correlation import CorrelationFilter, CorrelationIndex
from twinbus.namespace.sql.failures import FilterError, SqlError
from twinbus.namespace.sql.filters import Filter, compile_filter
from twinbus.namespace.sql.system_properties import SYSTEM_PROPERTIES, SystemProperty
from twinbus.namespace.sql.view import MISSING, MessageView

__all__ = [
    "MISSING",
    "SYSTEM_PROPERTIES",
    "Action",
    "Changes",
    "CorrelationFilter",
    "CorrelationIndex",
    "Filter",
    "FilterError",
    "MessageView",
    "SqlError",
    "SystemProperty",
    "compile_action",
    "compile_filter",
]
