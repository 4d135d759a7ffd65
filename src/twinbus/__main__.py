"""`python -m twinbus` is `twinbus`."""

from twinbus.cli.main import main

if __name__ == "__main__":
    main()
