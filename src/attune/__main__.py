"""`python -m attune`: the same as the `attune` command."""

import sys

from attune.cli import main

sys.exit(main())
