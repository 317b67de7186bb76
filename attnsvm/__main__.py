"""`python -m attnsvm` is `attnsvm`."""

from attnsvm.cli.app import main

main()
