"""``python -m spen`` is the command line too."""

from spen.cli import main

main()
