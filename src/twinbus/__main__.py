"""`python -m twinbus` is `twinbus`."""

from twinbus.cli.entry import main

if __name__ == "__main__":
    main()
