"""An encoded message: its sections found, read, built and changed."""
