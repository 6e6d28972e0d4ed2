"""Language models and beams on AN4: what they gain, on speakers that nobody trained or tuned on.

    python benchmarks/language_models.py AN4_FOLDER WORK_FOLDER [--whisper MODEL]

AN4_FOLDER has train.jsonl and dev.jsonl with audio. Every ninth speaker of train becomes dev, and its dev.jsonl is the
test set. Utterances of train with one of the 20 words of the test set that train has least often are left out of
training. A small CTC model is fine-tuned from the packaged demo model for some minutes; all else takes seconds to a few
minutes. Running it again goes on with what is there. Prints one JSON object per part. Phrases are in phrases.py.
"""

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import attune
from attune.api import load
from attune.catalog import NORMALIZERS, find
from attune.cli._shell import main
from attune.decoding import ctc, search
from attune.scoring.error_rates import word_errors
from attune.scoring.significance import paired_bootstrap
from attune.scoring.texts import texts_of
from attune.site import this_site
from attune.stages import drain
from attune.stages.eval_target import evaluate_target, open_eval_target
from attune.stages.evaluate import Evaluation
from attune.types import CtcScorer
from attune.world import World

CTC = """\
run: {work}/ctc
seed: 7
data: {{train: [{work}/train.jsonl], dev: [{work}/dev.jsonl], test: [{work}/test.jsonl]}}
task: {{name: transcribe, tokens: characters, normalizer: basic, head: {{layers: 2, width: 160, dropout: 0.2}}}}
model: {{family: ssl, upstream: fbank, weights: "attune://demo/model"}}
augment: {{speeds: [0.9, 1.0, 1.1], masks: {{time_masks: 2, frequency_masks: 2, frequency_bins: 40}}}}
batches: {{micro_seconds: 45, micros_per_step: 1}}
optimizer: {{name: adamw, lr: 3e-3, weight_decay: 0.01}}
train: {{steps: 480, warmup: 10, schedule: cosine, eval_every: 120, save_every: 120, keep_best: dev.wer}}
decode: {{search: greedy}}
"""
LM = """\
run: {run}
seed: 7
data: {{train: [{text}], dev: [{work}/dev.jsonl]}}
task: {{name: language_model, normalizer: basic}}
model: {{family: lm, kind: transformer, size: tiny, dropout: 0.1{weights}}}
batches: {{micro_utterances: 32}}
optimizer: {{name: adamw, lr: {lr}}}
train: {{steps: {steps}, warmup: 20, schedule: cosine, eval_every: 100, save_every: 100, keep_best: dev.perplexity}}
"""
PANGRAM = "the quick brown fox jumps over the lazy dog"  # a language model's letters must be the recognizer's
HELD_BACK = 20
NORMALIZE = find(NORMALIZERS, "basic")


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a manifest."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """A manifest of these rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def split(data: Path, work: Path) -> None:
    """Train, dev and test, no speaker in two of them."""
    rows, test = rows_of(data / "train.jsonl"), rows_of(data / "dev.jsonl")
    for row in (*rows, *test):
        row["audio"] = str(data / row["audio"])
    held = set(sorted({row["speaker"] for row in rows})[::9])
    train, dev = ([row for row in rows if (row["speaker"] in held) == is_dev] for is_dev in (False, True))
    words = held_back_words(train, test)
    write_rows(work / "train.jsonl", [row for row in train if not has_any(row, words)])
    write_rows(work / "dev.jsonl", dev)
    write_rows(work / "test.jsonl", test)


def held_back_words(train: list[dict[str, Any]], test: list[dict[str, Any]]) -> list[str]:
    """The words of the test set that training has least often, four letters at least."""
    seen = Counter(word for row in train for word in NORMALIZE(row["text"]).split())
    wanted = {word for row in test for word in NORMALIZE(row["text"]).split() if len(word) > 3}
    return sorted(sorted(wanted), key=lambda word: seen[word])[:HELD_BACK]


def has_any(row: dict[str, Any], words: Sequence[str]) -> bool:
    """Whether an utterance has one of these words."""
    return not {*NORMALIZE(row["text"]).split()}.isdisjoint(words)


def train(work: Path, name: str, recipe: str) -> None:
    """Train what is not there yet."""
    if (work / name / "model").is_dir():
        return
    (work / f"{name}.yaml").write_text(recipe)
    attune.train(work / f"{name}.yaml", show=False)


def evaluate(run: Path, on: str, **settings: object) -> Evaluation:
    """Decode and score, without writing anything."""
    site = this_site(workers=0)
    words = [f"decode.{name}={value}" for name, value in settings.items()]
    return drain(evaluate_target(open_eval_target(str(run), words, site), on, None, site, World.alone()))


def difference(first: Evaluation, second: Evaluation) -> list[float]:
    """The difference of WER with its paired interval and p."""
    (before, words), (after, _) = (word_errors(*texts_of(each.predictions), NORMALIZE) for each in (first, second))
    found = paired_bootstrap(before, after, words)
    return [round(each, 2) for each in found]


def wer(evaluation: Evaluation) -> list[float]:
    """WER with its interval."""
    score = evaluation.primary
    return [round(each, 2) for each in (score.value, score.low, score.high)]


def sha256(run: Path) -> str:
    """Of a run's weights."""
    return hashlib.sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()


def fine_tune_lm(work: Path) -> None:
    """A language model of general text, and the same fine-tuned on the transcripts of the training speakers."""
    general = [row["text"].lower() for row in rows_of(Path(attune.__file__).parent / "demo" / "train.jsonl")]
    letters = set(PANGRAM)
    texts = ["".join(one for one in text if one in letters) for text in general]
    (work / "general.txt").write_text("\n".join([*texts, PANGRAM]) + "\n")
    train(work, "lm-general", LM.format(run=work / "lm-general", text=work / "general.txt", work=work, weights="",
                                        lr=3e-3, steps=200))  # fmt: skip
    weights = f", weights: {work / 'lm-general'}"
    train(work, "lm-tuned", LM.format(run=work / "lm-tuned", text=work / "train.jsonl", work=work, weights=weights,
                                      lr=2e-3, steps=400))  # fmt: skip


def language_models(work: Path) -> None:
    """Language models of the training transcripts, fused in the beam of a CTC model."""
    asr = work / "ctc"
    before = sha256(asr)
    fine_tune_lm(work)
    found: dict[str, Any] = {"part": "fine-tuning the language model alone", "asr sha256 unchanged": None}
    for name in ("lm-general", "lm-tuned"):
        scores = evaluate(work / name, str(work / "test.jsonl")).scores.values
        found[name] = {key: round(score.value, 2) for key, score in scores.items()}
    main(["lm", str(work / "train.jsonl"), "--order", "6", "--tokenizer", str(asr), "--to", str(work / "lm.arpa")])
    main(["lm", str(work / "train.jsonl"), "--normalizer", "basic", "--to", str(work / "words.arpa")])
    fused = {
        "fused with lm-tuned": work / "lm-tuned",
        "fused with 6-grams": work / "lm.arpa",
        "fused with 3-grams of words": work / "words.arpa",
    }
    for name, lm in fused.items():
        (asr / "fusion.json").unlink(missing_ok=True)
        main(["tune-fusion", str(asr), "decode.search=beam", "decode.beam=16", f"decode.lm={lm}", "--on", "dev"])
        greedy = evaluate(asr, "test", search="greedy")
        beam = evaluate(asr, "test", search="beam", beam=16)
        both = evaluate(asr, "test")
        found[name] = {
            "weight": both.search.fusion and both.search.fusion.weight,
            "greedy": wer(greedy),
            "beam": wer(beam),
            "fused": wer(both),
            "beam less greedy": difference(greedy, beam),
            "fused less greedy": difference(greedy, both),
            "fused less beam": difference(beam, both),
        }
    (asr / "fusion.json").unlink()
    found["asr sha256 unchanged"] = sha256(asr) == before
    print(json.dumps(found), flush=True)


def ctc_beams(work: Path, beam: int = 16) -> None:
    """A CTC beam over a batch and over one at a time, for three sizes of vocabulary; the same hypotheses."""
    torch.manual_seed(0)
    lengths = [round(100 * row["seconds"] / 3) for row in rows_of(work / "test.jsonl")[:64]]
    for vocabulary in (32, 1024, 5000):
        logits = torch.randn(len(lengths), max(lengths), vocabulary) * 3
        logits[..., 0] += 8 if vocabulary < 5000 else 10
        scorer = CtcScorer(logits.log_softmax(-1), torch.tensor(lengths))

        def together(scorer: CtcScorer = scorer) -> list[Any]:
            return ctc.beam_search(scorer, beam)

        def alone(scorer: CtcScorer = scorer) -> list[Any]:
            rows = zip(scorer.log_probs, lengths, strict=True)
            return [ctc.beam_search(CtcScorer(row[None, :own], torch.tensor([own])), beam)[0] for row, own in rows]

        show_beams(f"CTC, {vocabulary} tokens", len(lengths), (*best_time(together), *best_time(alone)))


def best_time(call: Callable[[], list[Any]], times: int = 3) -> tuple[float, list[Any]]:
    """The least processor time of some, and the result."""
    least = float("inf")
    for _ in range(times):
        start = time.process_time()
        found = call()
        least = min(least, time.process_time() - start)
    return least, found


def show_beams(name: str, count: int, found: tuple[float, list[Any], float, list[Any]]) -> None:
    """The utterances per second of both ways."""
    together, both, alone, single = found
    report = {
        "part": f"beam 16, {name}, {count} utterances",
        "together / s": round(count / together, 1),
        "alone / s": round(count / alone, 1),
        "times": round(alone / together, 1),
        "equal": both == single,
    }
    print(json.dumps(report), flush=True)


def model_beams(name: str, model: str | Path, work: Path, count: int = 16, **settings: object) -> None:
    """A beam of a real model over a batch and over one at a time: the search alone, by turns, the least of three."""
    beam = load(model, decode={"search": "beam", "beam": 16, **settings})
    audio = [row["audio"] for row in rows_of(work / "test.jsonl")[:count]]
    spent = [0.0]
    usual, searches = search.search, vars(search)

    def timed(*arguments: Any) -> Any:
        start = time.process_time()
        found = usual(*arguments)
        spent[0] += time.process_time() - start
        return found

    searches["search"] = timed
    least, texts = [float("inf")] * 2, [list[str]()] * 2
    for _ in range(3):
        for way, groups in enumerate(([audio], [[one] for one in audio])):
            spent[0] = 0.0
            texts[way] = [text for group in groups for text in beam.transcribe(group)]
            least[way] = min(least[way], spent[0])
    searches["search"] = usual
    show_beams(f"{name} {settings or ''}", count, (least[0], texts[0], least[1], texts[1]))


def run() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--whisper", help="a Whisper model")
    parser.add_argument("--transducer", help="a transducer")
    parser.add_argument("--aed", help="an attention model")
    parser.add_argument("--parts", default="lm,beams")
    arguments = parser.parse_args()
    work = arguments.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    split(arguments.data.absolute(), work)
    train(work, "ctc", CTC.format(work=work))
    parts = arguments.parts.split(",")
    if "lm" in parts:
        language_models(work)
    models = {
        "CTC": work / "ctc",
        "transducer": arguments.transducer,
        "Whisper": arguments.whisper,
        "aed": arguments.aed,
    }
    if "beams" in parts:
        ctc_beams(work)
        for name, model in models.items():
            if model:
                model_beams(name, model, work)


if __name__ == "__main__":
    run()
