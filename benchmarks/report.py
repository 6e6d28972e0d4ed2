"""The report of a hundred thousand utterances: how long it takes to build, how large it is, how soon it opens.

python benchmarks/report.py [UTTERANCES] [FOLDER]
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import soundfile

from attune.metrics import Prediction
from attune.report.predictions import write_predictions
from attune.report.tables import scores_json
from attune.run import Run
from attune.run_report import make_report
from attune.scoring.error_rates import score_transcripts
from attune.site import this_site
from attune.text.normalizers.basic import NORMALIZER

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import browser

RECIPE = """\
run: {folder}
data: {{train: [{train}], test: [{test}]}}
task: {{name: transcribe, normalizer: basic}}
model: {{family: ssl}}
batches: {{micro_seconds: 3}}
optimizer: {{lr: 0.01}}
train: {{steps: 1000}}
"""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
RECORDINGS = 200  # files that the rows share


def make_run(folder: Path, utterances: int) -> Run:
    """A run with a log, predictions and scores of made-up sentences: 12 words on average, one in ten wrong."""
    random = np.random.default_rng(17)
    words = ["".join(random.choice(list(LETTERS), int(random.integers(2, 10)))) for _ in range(20_000)]
    frequent = 1 / np.arange(1, len(words) + 1)
    draw = random.choice(len(words), size=utterances * 12, p=frequent / frequent.sum())
    audio = folder / "audio"
    audio.mkdir(parents=True, exist_ok=True)
    for number in range(RECORDINGS):
        soundfile.write(audio / f"{number}.wav", random.normal(0, 0.1, 16000 * 4).astype(np.float32), 16000)
    rows, predictions = [], []
    for number in range(utterances):
        text = [words[place] for place in draw[number * 12 : number * 12 + 4 + number % 9]]
        found = [word for word in text if random.random() > 0.03]
        found = [words[int(random.integers(200))] if random.random() < 0.06 else word for word in found]
        written = " ".join(text).capitalize() + "."
        name = f"{number % 400:04d}-{number:07d}"
        rows.append(
            {"id": name, "audio": f"audio/{number % RECORDINGS}.wav", "seconds": 4.0, "text": written,
             "speaker": f"speaker-{number % 400}", "language": ("en", "de", "fr")[number % 3]}
        )  # fmt: skip
        predictions.append(Prediction(name, " ".join(found).capitalize() + ".", written, -float(random.random() * 30)))
    for name, part in (("train", rows[:20_000]), ("test", rows)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    manifests = {name: folder / f"{name}.jsonl" for name in ("train", "test")}
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder, **manifests))
    (folder / "task").mkdir(exist_ok=True)
    (folder / "task" / "characters.json").write_text(json.dumps(list(LETTERS)))
    run = Run(folder)
    write_predictions(run.predictions("test"), predictions)
    texts = [str(each.reference) for each in predictions], [str(each.value) for each in predictions]
    run.add_scores("test", {**scores_json(score_transcripts(*texts, NORMALIZER, "basic")), "utterances": utterances})
    for step in range(1, 5001):
        run.log("step", step=step, loss=8 / step**0.5, lr=1e-3, gradient_norm=1.0, audio_seconds_per_second=900.0)
    return run


def main() -> None:
    """Build, measure and open the page."""
    utterances = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "/tmp/attune-report")
    run = make_run(folder, utterances)
    out = folder / "report.html"
    make = lambda: make_report([run], this_site(), folder).save(out)  # noqa: E731
    make()  # type: ignore[no-untyped-call]  # the first scans the manifests
    began, processor = time.perf_counter(), time.process_time()
    make()  # type: ignore[no-untyped-call]
    print(f"built: {time.perf_counter() - began:.1f} s ({time.process_time() - processor:.1f} s of processor)")
    print(f"size: {out.stat().st_size / 1e6:.1f} MB")
    with browser() as tab:
        tab.look()
        seconds = [tab.open(f"file://{out}", "document.querySelectorAll('.row').length > 5") for _ in range(3)]
        print(f"opened: {min(seconds):.2f} s (best of 3: {', '.join(f'{each:.2f}' for each in seconds)})")
        began = time.perf_counter()
        tab.run("window.page.filter({q: 'ab'})")
        print(f"filtered by a text: {time.perf_counter() - began:.2f} s; problems: {tab.problems}")


if __name__ == "__main__":
    main()
