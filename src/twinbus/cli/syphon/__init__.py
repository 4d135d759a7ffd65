"""`twinbus syphon`: its commands, one run, and what people see of it."""
