"""The rules of subscriptions: SQL filters and actions (docs/reference/sql-filters.md), and correlation filters."""
