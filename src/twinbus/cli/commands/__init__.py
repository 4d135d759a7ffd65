"""One file for each command: its options, one call, what is printed."""
