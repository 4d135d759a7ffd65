"""The paired client for asyncio. `client/sync` is generated from it, except the files in the last line.

client.py, sender.py, receivers.py, sides.py   what applications have in hand
pair_runner.py                                 runs a pair: what flows ask for, what the pairing core orders
flow_driver.py                                 runs one flow, step by step
transport.py                                   where the links of a pair come from
sdk_transport.py, backlog_pool.py              links of the official SDK
provisioner.py                                 finds and makes backlog queues
concurrency.py, links.py, timers.py, board_runner.py, syphon_runner.py   what differs between tasks and threads
"""
