"""``python -m patchtrace``: the same as ``patchtrace``."""

from patchtrace.cli import main

if __name__ == "__main__":
    main()
