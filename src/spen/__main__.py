"""``python -m spen`` is the command line too."""

from spen.cli.app import main

main()
