"""The command line as ``python -m spen``."""

from spen.cli.app import main

main()
