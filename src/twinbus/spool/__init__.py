"""The spool: messages on the local disk while neither namespace takes them, until they can go on."""
