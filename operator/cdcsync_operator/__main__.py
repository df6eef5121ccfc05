"""`python -m cdcsync_operator` is `cdcsync`."""

from cdcsync_operator.cli.main import main

main()
