"""Options that commands share.

common_options.py      options of most commands: --json, --timeout
option_groups.py       groups of options, how commands take them, and options that were renamed or dropped
namespaces.py          which namespaces a command is about, and by which keys
credentials.py         keys that `twinbus serve` knows
pairing_arguments.py   every option of the paired client
server_arguments.py    options of commands that serve
completion.py          shell completion
"""
