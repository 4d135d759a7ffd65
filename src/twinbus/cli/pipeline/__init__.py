"""`twinbus pipeline`: reports, watching and drains on Spark."""
