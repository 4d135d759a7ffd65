"""pytest fixtures: real namespaces on free ports."""
