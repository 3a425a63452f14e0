"""The command line as ``python -m spen``."""

from spen.cli import main

main()
