"""A hundred kills over one run, on 2, 4, 1, 3, 2 … ranks in turn: what is left is what a quiet run leaves.

python benchmarks/kills.py [KILLS]
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from killing import bits, complaints, kill_again_and_again
from processes import start, wait
from tiny import write_recipe

STEPS = 900
SETTINGS = ["train.strict=true", "train.save_every=1", "train.eval_every=25", "data.test=[]", "--workers=0"]


def main() -> None:
    """Kill, compare, and say what was found."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        command = ["train", str(write_recipe(folder)), f"train.steps={STEPS}", *SETTINGS]
        quiet, run = folder / "quiet", folder / "run"
        if wait(start([*command, f"run={quiet}"]), 600) != [0]:
            sys.exit("the quiet run failed")
        began = time.monotonic()
        killed = kill_again_and_again([*command, f"run={run}"], run, folder / "records", kills)
        minutes = (time.monotonic() - began) / 60
        wrong = complaints(killed, [f"{number:05d}" for number in range(24)])
        same = bits(run, STEPS) == bits(quiet, STEPS)
        again = sum(path.read_text().count("\n") for path in (folder / "records").iterdir()) - len(killed.trained)
        print(f"{killed.kills} kills in {minutes:.1f} minutes over {STEPS} steps, {killed.epochs[STEPS] + 1} epochs")
        print(f"micro-batches: {len(killed.trained)}, of which trained again after a kill: {again}")
        print(f"each utterance once per epoch, best never worse: {'yes' if not wrong else wrong[:5]}")
        print(f"weights, optimizer and position have the SHA-256 sums of the quiet run: {'yes' if same else 'NO'}")
        sys.exit(0 if same and not wrong else 1)


if __name__ == "__main__":
    main()
