"""Pairing for any language: the links of the broker, with a pair of namespaces behind them."""
