"""`python -m tilewright`: the console script, where no `tilewright` is on the path."""

from tilewright.cli import main

main()
