"""A look at a pair from outside, for `twinbus status`."""
