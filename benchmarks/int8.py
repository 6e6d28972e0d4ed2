"""What int8 does to a recognizer on the CPU: WER and CPU seconds beside fp32, and whether answers depend on the batch.

    python benchmarks/int8.py MODEL MANIFEST [--rows 40] [--rounds 3] [--normalizer basic]

MODEL is a run, a model folder or its URL; MANIFEST a .jsonl file with `audio` and `text`. CPU seconds are the least of
all rounds, for all rows in batches. One thread, unless OMP_NUM_THREADS says otherwise.
"""

import argparse
import json
import time
from pathlib import Path

from attune.api import load, load_audio, score


def main() -> None:
    """Print a line for each precision."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--normalizer", default="basic")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.manifest.read_text().splitlines()][: arguments.rows]
    audio = [load_audio(str(arguments.manifest.parent / row["audio"])) for row in rows]
    texts = [row["text"] for row in rows]
    print("| | WER | CPU s | other texts than fp32 | other texts one by one |\n|---|---|---|---|---|")
    exact: list[str] = []
    for precision in ("fp32", "int8"):
        recognizer = load(arguments.model, "cpu", precision=precision)
        seconds = []
        for _ in range(arguments.rounds):
            began = time.process_time()
            found = list(recognizer.transcribe(audio))
            seconds.append(time.process_time() - began)
        exact = exact or found
        wer = score(texts, found, arguments.normalizer).values["wer"].value
        differ = sum(one != other for one, other in zip(exact, found, strict=True))
        alone = sum(recognizer.transcribe([one])[0] != other for one, other in zip(audio, found, strict=True))
        print(f"| {precision} | {wer:.2f} % | {min(seconds):.2f} | {differ} | {alone} |", flush=True)


if __name__ == "__main__":
    main()
