"""The `attune` command. A subcommand (verb) is a file of this folder, with the same name.

Each exports HELP, EXAMPLE, `add_arguments(parser)` and `run(arguments)`, which returns the exit code. Heavy imports
stay inside `run`, so that `attune --help` is quick.
"""

# Nothing more in this file: verbs become names in it, and `list` would hide the built-in one.
from attune.cli._shell import main, verbs

__all__ = ["main", "verbs"]
