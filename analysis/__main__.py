"""`python -m analysis` is the command `ttt-analysis`."""

from analysis.cli import main

if __name__ == "__main__":
    main()
