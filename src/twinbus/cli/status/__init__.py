"""`twinbus status`, and its views."""
