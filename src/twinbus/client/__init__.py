"""The paired client: does what the pairing core decides, with the official SDK, on threads or on tasks."""
