"""`python -m llamita` is `llamita`."""

from llamita.cli.main import main

main()
