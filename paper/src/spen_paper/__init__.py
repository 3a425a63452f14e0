"""The paper's tables, the studies around them and the bench, as commands of ``spen``."""

__version__ = "0.2.0"
