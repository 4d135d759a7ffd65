"""AMQP 1.0 as bytes: types, performatives and frames, encoded and decoded. No state."""
