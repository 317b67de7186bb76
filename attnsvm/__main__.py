"""`python -m attnsvm` is `attnsvm`."""

from attnsvm.app import main

main()
