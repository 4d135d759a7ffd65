"""The conversations of a paired client, each written once; threads, tasks and tests run them."""
