"""Options that commands share: namespaces, keys, pairing, serving, completion."""
