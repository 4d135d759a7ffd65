"""How the proxy sends: by the pairing core, on links of our own engine.

pair_client.py        the paired client inside the proxy: entities, status, its end
routing.py            which way a send takes: straight to the primary, or by a flow; and their order
flow_runner.py        runs flows, which decide between primary, backlog and spool (client/flows/send_flow.py)
schedules.py          requests to schedule and to cancel
arrived_messages.py   messages of applications
refusals.py           what applications are told if messages were not stored
"""
