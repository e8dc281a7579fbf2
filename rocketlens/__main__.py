"""The command `rocketlens`, and `python -m rocketlens`."""

import sys

from rocketlens.own_packages import require_own_packages


def main() -> None:
    """Run the command, or say what is in its way and end with exit code 2."""
    try:
        require_own_packages()
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    # Only now: before the check it could be a package of another distribution.
    from rocketlens.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
