"""Administration over HTTPS, passed on to the primary."""
