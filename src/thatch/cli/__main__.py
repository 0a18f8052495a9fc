"""Runs the command line: `python -m thatch.cli`."""

from thatch.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
