"""``python -m smisym``: the command line."""

from smisym.cli import main

if __name__ == "__main__":
    main()
