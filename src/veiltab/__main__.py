"""Lets ``python -m veiltab`` do what ``veiltab`` does."""

from veiltab.cli.main import main

main()
