"""`python -m pflbench`: the same as the `pflbench` program."""

from pflbench.cli.main import main

if __name__ == "__main__":
    main()
