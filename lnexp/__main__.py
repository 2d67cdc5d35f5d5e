"""``python -m lnexp``."""

from lnexp.cli import main

main()
