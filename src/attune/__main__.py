"""`python -m attune`: the same as the `attune` command."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109  (os is there already)
    del sys.path[0]  # a file of the working folder, such as soundfile.py in a model that was pulled, is not to be run

from attune.cli import main

sys.exit(main())
