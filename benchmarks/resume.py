"""How long a run at 99 % of a five-million-utterance epoch takes to its first batch when it is resumed.

    .venv/bin/python benchmarks/resume.py [ROWS]

Counts the audio files that are opened before that batch: it should be only those in it.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from attune.testing import make_corpus

MEASURE = """
import sys, time
start = time.perf_counter()
from pathlib import Path
import numpy as np
import soundfile
from attune.batches.load import Reader, load, micros_from
from attune.batches.micro_batch import Position
from attune.batches.plan import Budget, plan_epoch
from attune.corpora import open_corpus
imported = time.perf_counter()
opened = []
real = soundfile.SoundFile.__init__
def watched(self, file, *arguments, **options):
    opened.append(file)
    real(self, file, *arguments, **options)
soundfile.SoundFile.__init__ = watched
manifest, index, share = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
corpus = open_corpus("train", [manifest], index)
rows = np.arange(len(corpus))
plan = plan_epoch(corpus.seconds, rows, Budget(240.0, None, 8), 17, 0)
position = Position(int(plan.steps * share), 0, int(plan.steps * share))
micros = micros_from(position, lambda epoch: plan, 0, 1, False)
first = next(load(Reader(corpus), micros, workers=0))
done = time.perf_counter()
print(f"{len(corpus):,} rows, step {position.step:,} of {plan.steps:,}: first batch of {len(first.batch.ids)} after "
      f"{done - imported:.2f} s ({imported - start:.2f} s of imports before), {len(opened)} audio files opened")
"""


def write_manifest(folder: Path, rows: int) -> Path:
    """Rows that all name one of a few real files."""
    clips = [json.loads(line) for line in make_corpus(folder, utterances=24, seed=1).read_text().splitlines()]
    manifest = folder / "large.jsonl"
    random = np.random.default_rng(0)
    with manifest.open("w") as file:
        for row, clip in enumerate(random.integers(0, len(clips), rows)):
            file.write(json.dumps({**clips[clip], "id": f"u{row}"}) + "\n")
    return manifest


def main() -> None:
    """Measure at 1 % and at 99 % of the epoch."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    with tempfile.TemporaryDirectory() as scratch:
        manifest = write_manifest(Path(scratch), rows)
        for share in ("0.01", "0.01", "0.99"):  # the first of them scans the manifest and writes its index
            start = time.perf_counter()
            command = [sys.executable, "-c", MEASURE, str(manifest), f"{scratch}/index", share]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
            print(f"  the whole process: {time.perf_counter() - start:.1f} s")


main()
