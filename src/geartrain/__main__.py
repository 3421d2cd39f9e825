"""`python -m geartrain`: the same as `geartrain`."""

from geartrain.cli import main

if __name__ == "__main__":
    main()
