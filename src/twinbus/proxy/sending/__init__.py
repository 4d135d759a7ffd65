"""How the proxy sends: by the pairing core, on links of our own engine."""
