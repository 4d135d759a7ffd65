"""twinbus keeps applications sending when their message bus is down."""

__version__ = "0.1.0"
