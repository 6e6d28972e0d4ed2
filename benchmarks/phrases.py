"""Phrases on AN4: how many held-back words each kind of search finds, and what that costs.

    python benchmarks/phrases.py AN4_FOLDER WHISPER_FOLDER WORK_FOLDER [--parts words,train,settle,measure]

Of the words with four letters or more that AN4 has at most 20 times, the 40 most frequent are held back: every second
one (from the first) is a phrase of the test, the others are phrases of the tuning set, on which alone settings were
chosen. No recognizer is trained on any text with a word that has one of them in it. The recognizers have Whisper's
frozen encoder (transformers folder of whisper-tiny.en) and a CTC, transducer or attention output over characters on
it, trained on AN4 and on made-up sentences by espeak-ng. WER of the others is that of speakers who were not trained on.
Prints one JSON object per measurement. Running it again goes on with what is there.
"""

import argparse
import itertools
import json
import random
import re
import subprocess
import sysconfig
import wave
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import attune
from attune.api import load
from attune.catalog import NORMALIZERS, find
from attune.metrics import Prediction
from attune.scoring.error_rates import word_errors
from attune.scoring.keywords import score_keywords
from attune.scoring.significance import paired_bootstrap
from attune.scoring.texts import texts_of

Row = dict[str, Any]
HELD_BACK = 40
MOST = 20  # times that such a word may occur
POSITIONS = 350  # of Whisper's encoder: 7 s, which all of AN4 fits in
CLIPS, SECONDS = 2000, 6.6
ACCENTS = ("en-us", "en-us", "en-us-nyc", "en-gb", "en-gb-x-rp", "en-gb-scotland", "en-029")
VARIANTS = "m1 m2 m3 m4 m5 m6 m7 m8 f1 f2 f3 f4 f5 Alex Andy Annie belinda edward Gene linda max Michael steph victor"
RECIPE = """\
run: {work}/{name}
seed: {seed}
data: {{train: [{work}/train.jsonl, {work}/spoken.jsonl], mix: {{weights: [1, 1]}}, dev: [{work}/dev.jsonl]}}
task: {{name: {task}, normalizer: basic, tokens: characters, head: {{layers: 0, width: 256, dropout: 0.1}}}}
model: {{family: ssl, upstream: whisper, weights: {work}/whisper, layers: [2, 3, 4], stack: 2, cache: {work}/features}}
adapt: {{freeze: [upstream]}}
batches: {{micro_seconds: 60, micros_per_step: 1}}
optimizer: {{name: adamw, lr: 3e-3, weight_decay: 0.01}}
train: {{steps: {steps}, warmup: 40, schedule: cosine, clip: 5.0, eval_every: 200, save_every: 200, keep_best: dev.wer}}
decode: {{search: greedy}}
"""
OUTPUTS = Path(__file__).parent / "outputs.py"
RECOGNIZERS = {  # seed, steps and task of each
    "ctc": (7, 600, "transcribe"),
    "transducer": (8, 600, f"{OUTPUTS}, output: transducer"),
    "aed": (9, 1000, f"{OUTPUTS}, output: attention"),
}
BEAMS = {"ctc": 16, "transducer": 8, "aed": 8, "whisper": 5}
JOINT = {"aed": {"ctc_weight": 0.5}}  # of the weights that were tried, the least WER on the tuning set
BASIC = find(NORMALIZERS, "basic")


def rows_of(path: Path) -> list[Row]:
    """The rows of a manifest."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_rows(path: Path, rows: list[Row]) -> None:
    """A manifest of these rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def words_of(row: Row) -> list[str]:
    """The words of a text."""
    return BASIC(row["text"]).split()


def has_any(row: Row, words: Sequence[str]) -> bool:
    """Whether an utterance has one of these words."""
    return not set(words).isdisjoint(words_of(row))


def split(data: Path, work: Path) -> None:
    """The words, and training, dev, tuning and test sets."""
    rows, unseen = rows_of(data / "train.jsonl"), rows_of(data / "dev.jsonl")
    every = [*rows, *unseen]
    for row in every:
        row["audio"] = str(data / row["audio"])
    counts = Counter(word for row in every for word in words_of(row) if len(word) > 3)
    rare = sorted((word for word in counts if counts[word] <= MOST), key=lambda word: (-counts[word], word))
    held = rare[:HELD_BACK]
    test, tuning = held[::2], held[1::2]
    dev_speakers = set(sorted({row["speaker"] for row in rows})[::9])
    clean = [row for row in rows if not any(each in word for word in words_of(row) for each in held)]
    dev = [row for row in clean if row["speaker"] in dev_speakers]
    (work / "words.json").write_text(json.dumps({"test": test, "tuning": tuning}))
    write_rows(work / "train.jsonl", [row for row in clean if row["speaker"] not in dev_speakers])
    write_rows(work / "dev.jsonl", dev[::2])
    is_tuned = [row for row in rows if has_any(row, tuning) and not has_any(row, test)]
    write_rows(work / "tuning.jsonl", [*is_tuned, *dev])
    others = [row for row in unseen if not has_any(row, test)]
    write_rows(work / "test.jsonl", [*(row for row in every if has_any(row, test)), *others])


def speak(work: Path) -> None:
    """Clips of random words by espeak-ng: those of Python's library, of the guides here and of the training set.

    Other versions of those have other words, so sentences differ a little from what was measured.
    """
    held = json.loads((work / "words.json").read_text())
    python, guides = Path(sysconfig.get_path("stdlib")), Path(__file__).parents[1] / "docs"
    files = sorted([*python.glob("*.py"), *python.glob("pydoc_data/*.py"), *guides.rglob("*.md")])
    text = "\n".join(path.read_text(errors="ignore") for path in files)
    counts = Counter(re.findall(r"(?<= )[a-z]{2,12}(?=[ ,.;\n])", text))
    known = {word for row in rows_of(work / "train.jsonl") for word in words_of(row) if len(word) > 1}
    words = sorted({word for word in counts if counts[word] > 1} | known)
    words = [word for word in words if not any(each in word for each in [*held["test"], *held["tuning"]])]
    (work / "spoken").mkdir(exist_ok=True)
    order, rows = random.Random(3), list[Row]()
    deck = itertools.chain.from_iterable(order.sample(words, len(words)) for _ in itertools.count())
    for number in range(CLIPS):
        text = " ".join(itertools.islice(deck, order.randint(3, 10)))
        voice = f"{order.choice(ACCENTS)}+{order.choice(VARIANTS.split())}"
        path = work / "spoken" / f"{number:04d}.wav"
        rate, pitch = order.randint(125, 190), order.randint(25, 75)
        command = ["espeak-ng", "-v", voice, "-s", str(rate), "-p", str(pitch), "-w", str(path), text]
        subprocess.run(command, check=True)
        with wave.open(str(path)) as opened:
            seconds = opened.getnframes() / opened.getframerate()
        if seconds < SECONDS:
            rows.append({"id": f"spoken-{number}", "audio": str(path), "text": text,
                         "seconds": round(seconds, 3), "speaker": voice})  # fmt: skip
    write_rows(work / "spoken.jsonl", rows)
    print(json.dumps({"clips": len(rows), "hours": sum(row["seconds"] for row in rows) / 3600, "words": len(words)}))


def short_whisper(whisper: Path, work: Path) -> None:
    """Whisper with the positions of 7 s instead of 30: its encoder then takes a fifth of the time."""
    folder = work / "whisper"
    folder.mkdir(exist_ok=True)
    config = json.loads((whisper / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_source_positions": POSITIONS}))
    tensors = load_file(whisper / "model.safetensors")
    name = "model.encoder.embed_positions.weight"
    save_file({**tensors, name: tensors[name][:POSITIONS].clone()}, folder / "model.safetensors", {"format": "pt"})


def train(work: Path, name: str) -> None:
    """Train what is not there yet."""
    if (work / name / "model").is_dir():
        return
    seed, steps, task = RECOGNIZERS[name]
    recipe = RECIPE.format(work=work, name=name, seed=seed, steps=steps, task=task)
    (work / f"{name}.yaml").write_text(recipe)
    attune.train(work / f"{name}.yaml", show=False)


def transcribe(name: str, model: Path, rows: list[Row], phrases: Sequence[str]) -> list[Prediction]:
    """What a recognizer finds with a beam."""
    decode = {"search": "beam", "beam": BEAMS[name], **JOINT.get(name, {})}
    beam = replace(load(model, decode=decode), phrases=tuple(phrases))
    texts = [str(each.value) for each in beam.predict([row["audio"] for row in rows])]
    return [Prediction(row["id"], text, row["text"]) for row, text in zip(rows, texts, strict=True)]


def scores(name: str, predictions: list[Prediction], words: Sequence[str], others: np.ndarray) -> dict[str, Any]:
    """How many phrases were found, and WER of all and of the utterances that have none."""
    normalize = find(NORMALIZERS, "english" if name == "whisper" else "basic")  # it writes numbers in digits
    errors, sizes = word_errors(*texts_of(predictions), normalize)
    return {
        **score_keywords(predictions, [words] * len(predictions), BASIC).conditions,
        "wer": round(100 * errors[~others].sum() / sizes[~others].sum(), 2),
        "wer of the others": round(100 * errors[others].sum() / sizes[others].sum(), 2),
        "errors of the others": f"{errors[others].sum()} of {sizes[others].sum()}",
    }


def measure(work: Path, name: str, model: Path, on: str) -> None:
    """Without phrases and with them, by the defaults."""
    words, rows = json.loads((work / "words.json").read_text())[on], rows_of(work / f"{on}.jsonl")
    others = np.array([not has_any(row, words) for row in rows])
    plain, boosted = (transcribe(name, model, rows, phrases) for phrases in ((), words))
    normalize = find(NORMALIZERS, "english" if name == "whisper" else "basic")
    (before, sizes), (after, _) = (word_errors(*texts_of(each), normalize) for each in (plain, boosted))

    def differences(rows: np.ndarray) -> list[float]:
        return [round(each, 2) for each in paired_bootstrap(before[rows], after[rows], sizes[rows])]

    report = {
        "recognizer": name,
        "set": f"{on}: {int((~others).sum())} utterances with phrases, {int(others.sum())} without",
        "plain": scores(name, plain, words, others),
        "boosted": scores(name, boosted, words, others),
        "difference of WER": differences(~others),
        "difference of the others": differences(others),
    }
    print(json.dumps(report), flush=True)


def run() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("whisper", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--parts", default="words,train,measure")
    parser.add_argument("--recognizers", default=",".join([*RECOGNIZERS, "whisper"]))
    parser.add_argument("--on", choices=("tuning", "test"), default="test")
    arguments = parser.parse_args()
    work, parts, names = arguments.work.absolute(), arguments.parts.split(","), arguments.recognizers.split(",")
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if "words" in parts:
        split(arguments.data.absolute(), work)
        short_whisper(arguments.whisper.expanduser(), work)
        speak(work)
    if "train" in parts:
        for name in names:
            if name in RECOGNIZERS:
                train(work, name)
    if "measure" in parts:
        for name in names:
            measure(work, name, work / name if name in RECOGNIZERS else arguments.whisper, arguments.on)


if __name__ == "__main__":
    run()
