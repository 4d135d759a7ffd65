"""The pump: decides what to send where and what to settle. No I/O."""
