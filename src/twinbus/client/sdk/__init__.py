"""The only place that uses private parts of the official SDK."""
