"""The state machine of a namespace: commands in, changes and replies out. No I/O."""
