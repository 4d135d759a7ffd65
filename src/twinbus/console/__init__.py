"""A web page for operators: what is down, what waits where, and what can be done about it.

access.py     who is let in, and from where: host, origin, token, cookie, proof that a request comes from the page
sections.py   what the page shows, as plain rows made of what the sources say
delta.py      what of that is new to a page
state.py      the present rows, what has changed lately, and the plots
watch.py      asks the sources again and again: status, board, syphons, spools, meter, faults, ledger
actions.py    what the buttons do: each is a command
app.py        requests and answers
server.py     the port
static/       the page
"""
