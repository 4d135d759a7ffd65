"""The command `twinbus`.

main.py     all commands, put together
commands/   one file for each command; syphon/, pipeline/, status/ and provisioning/ for those that are larger
arguments/  options that commands share
"""
