"""Generators of reference pages; `make pages` writes them all."""
