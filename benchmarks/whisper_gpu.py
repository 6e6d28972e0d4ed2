"""Whisper beside transformers, in one run: fine-tuning on real speech, training speed, greedy decoding.

    python benchmarks/whisper_gpu.py WEIGHTS AN4 OUT [--parts an4,peer,speed,greedy,exact]

WEIGHTS is real Whisper tiny.en in transformers' format, AN4 a folder with train.jsonl and dev.jsonl, OUT where
results.json goes. `--tiny` is to try the script on a CPU. The peer is transformers' Seq2SeqTrainer with its usual
collator on ready-made features. Both clocks start when model, data and libraries are there, and stop after the last
evaluation; neither saves anything meanwhile (attune's last checkpoint, written before the last evaluation is announced,
is subtracted), except in `an4-saving`, which is a run as a user would have it. Clips per second are over whole epochs,
as batches differ in size, after the first one, in which most shapes are seen for the first time and recorded when they
come again; waiting for data is included.
"""

import argparse
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import torch._dynamo  # any optimizer imports it; the peer has it before its clock starts
import transformers
from transformers import TrainerCallback, WhisperForConditionalGeneration, WhisperProcessor
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

from attune import recipe as recipes
from attune.api import score
from attune.batches.collate import collate
from attune.decoding.search import Search, search
from attune.families.whisper.model import WhisperModel
from attune.files import sha256
from attune.metrics import Prediction
from attune.stages.context import Evaluated, Stepped
from attune.stages.eval_target import load_eval_target, open_eval_target
from attune.stages.train import Request, train
from attune.types import Batch, LoadedRow, require_hypothesis

from on_device import forget, name, peak_gib, usual, wait
from whisper_data import SMALL, Size, prepare_an4, small_shapes, tiny

LR, PEER_LR = 3e-5, 5e-5  # the better of 2e-5, 3e-5 and 5e-5 over seeds; the usual one


def write_recipe(name: str, weights: Path, data: Path, changes: dict[str, str], size: Size) -> recipes.Recipe:
    """A recipe for these weights and data."""
    path = size.scratch / f"{name}.yaml"
    every = f"eval_every: {size.eval_every}, save_every: {size.steps}, keep_best: dev.wer"
    path.write_text(f"""
run: {size.scratch}/runs/{name}
seed: 17
data: {{train: [{data}/train.jsonl], dev: [{data}/dev.jsonl]}}
task: {{name: transcribe, language: en, normalizer: basic}}
model: {{family: whisper, weights: {weights}, window: trimmed}}
batches: {{micro_utterances: {size.batch}}}
optimizer: {{lr: {LR}}}
train: {{steps: {size.steps}, warmup: {size.warmup}, precision: bf16, {every}}}
""")
    return recipes.load(path, [f"{key}={value}" for key, value in changes.items()]).recipe


def english_wer(meant: list[str], said: list[str]) -> float:
    """The WER after Whisper's own normalizer for English."""
    normalize = EnglishTextNormalizer({})  # type: ignore[no-untyped-call]
    return round(score([normalize(text) for text in meant], [normalize(text) for text in said]).values["wer"].value, 2)


def _english_wer_of(predictions: Sequence[Prediction]) -> float | None:
    if not predictions:
        return None
    return english_wer([str(each.reference) for each in predictions], [str(each.value) for each in predictions])


def run_attune(recipe: recipes.Recipe, clips: int, size: Size, stops_early: bool = False) -> dict[str, Any]:
    """Train on so many clips; the first epoch is not counted. May stop before the last checkpoint and the export."""
    forget(size.device)
    start = last = scored = time.perf_counter()
    scores, times, predictions = list[float](), list[float](), tuple[Prediction, ...]()
    spent: dict[str, float] = {}
    ends: list[float] = []  # of epochs; the last one may not be over
    for event in train(recipe, Request(["benchmark"]), size.site(), size.world):
        now = time.perf_counter()
        kind = type(event).__name__  # what came before an event was done for it
        spent[kind], last = spent.get(kind, 0.0) + now - last, now
        if isinstance(event, Stepped):
            times.append(now)
            ends[event.step.progress.position.epoch :] = [now]
            if stops_early and len(times) == recipe.train.steps:
                break
        if isinstance(event, Evaluated):
            scored, predictions = now, event.evaluation.predictions
            scores.append(round(event.evaluation.scores.values["wer"].value, 2))
    unsaved = 0.0 if recipe.train.keep_best else spent.get("Saved", 0.0)
    return {
        "seconds_in_all": round(time.perf_counter() - start, 1),
        "seconds_to_the_last_evaluation": round(max(scored, times[-1]) - start - spent["Started"] - unsaved, 1),
        "seconds_by_event": {kind: round(value, 2) for kind, value in spent.items()},
        "dev_wer": scores,
        "dev_wer_english": _english_wer_of(predictions),
        # The last one may not be over.
        "clips_per_second": round(clips * (len(ends) - 2) / (ends[-2] - ends[0]), 1) if len(ends) > 2 else None,
        "epochs_counted": len(ends) - 2,
        "milliseconds_a_step": [round(1000 * (later - sooner)) for sooner, later in pairwise(times[:400])],
        "peak_gib": peak_gib(size.device),
    }


class Features(torch.utils.data.Dataset[dict[str, Any]]):
    """What the peer trains on: features and labels, made before."""

    def __init__(self, processor: WhisperProcessor, manifest: Path, ready: bool = True) -> None:
        self.rows = [json.loads(line) for line in manifest.read_text().splitlines()]
        self.processor, self.folder = processor, manifest.parent
        self.ready = [self._make(row) for row in self.rows] if ready else None

    def _make(self, row: dict[str, Any]) -> dict[str, Any]:
        samples = soundfile.read(self.folder / row["audio"], dtype="float32")[0]
        features = self.processor.feature_extractor(samples, sampling_rate=16_000).input_features[0]
        return {"input_features": features, "labels": self.processor.tokenizer(row["text"]).input_ids}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.ready[index] if self.ready else self._make(self.rows[index])


class Collator:
    """The collator of the community's notebook."""

    def __init__(self, processor: WhisperProcessor, start: int) -> None:
        self.processor, self.start = processor, start

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Features and labels of a batch."""
        features = [{"input_features": row["input_features"]} for row in rows]
        batch = self.processor.feature_extractor.pad(features, return_tensors="pt")
        labels = self.processor.tokenizer.pad([{"input_ids": row["labels"]} for row in rows], return_tensors="pt")
        masked = labels["input_ids"].masked_fill(labels.attention_mask.ne(1), -100)
        batch["labels"] = masked[:, 1:] if (masked[:, 0] == self.start).all() else masked
        return batch  # type: ignore[no-any-return]


class StepTimes(TrainerCallback):
    """Notes when each step of the peer has ended."""

    def __init__(self, times: list[float], device: torch.device) -> None:
        self.times, self.device = times, device

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """A step has ended."""
        wait(self.device)
        self.times.append(time.perf_counter())


def run_peer(weights: Path, data: Path, size: Size, evaluates: bool, lr: float = PEER_LR) -> dict[str, Any]:
    """Seq2SeqTrainer on the same data, where it evaluates on ready-made features; the first steps are not counted."""
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

    steps, after = (size.steps, size.eval_every) if evaluates else (size.peer_steps, size.peer_after)
    processor = WhisperProcessor.from_pretrained(weights)
    model = WhisperForConditionalGeneration.from_pretrained(weights, dtype=torch.float32)
    train_set = Features(processor, data / "train.jsonl", evaluates)
    dev_set = Features(processor, data / "dev.jsonl") if evaluates else None
    wers, english, times = list[float](), list[float](), list[float]()

    def measure(prediction: Any) -> dict[str, float]:
        labels = np.where(prediction.label_ids == -100, processor.tokenizer.pad_token_id, prediction.label_ids)
        said = processor.tokenizer.batch_decode(prediction.predictions, skip_special_tokens=True)
        meant = processor.tokenizer.batch_decode(labels, skip_special_tokens=True)
        wers.append(round(score(meant, said, normalizer="basic").values["wer"].value, 2))
        english.append(english_wer(meant, said))
        return {"wer": wers[-1]}

    arguments = Seq2SeqTrainingArguments(
        output_dir=str(size.scratch / "peer"), per_device_train_batch_size=size.batch,
        per_device_eval_batch_size=size.batch, use_cpu=size.device.type == "cpu",
        learning_rate=lr, warmup_steps=size.warmup, max_steps=steps, bf16=True, weight_decay=0.0, seed=42,
        eval_strategy="epoch" if evaluates else "no", save_strategy="no", predict_with_generate=True,
        generation_max_length=min(225, model.config.max_target_positions // 2),
        dataloader_num_workers=size.peer_workers, dataloader_persistent_workers=size.peer_workers > 0,
        report_to=[], logging_steps=10_000, disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        args=arguments, model=model, train_dataset=train_set, eval_dataset=dev_set,
        data_collator=Collator(processor, model.config.decoder_start_token_id), compute_metrics=measure,
        callbacks=[StepTimes(times, size.device)],
    )  # fmt: skip
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start
    late = size.batch * (len(times) - after) / (times[-1] - times[after - 1])
    last = english[-1] if english else None
    return {
        "seconds": round(seconds, 1), "clips_per_second": round(late, 1), "dev_wer": wers, "dev_wer_english": last
    }  # fmt: skip


def speed(weights: Path, size: Size) -> dict[str, Any]:
    """Clips per second in training at Whisper small's shapes."""
    small, data = small_shapes(weights, size)
    quiet = {"train.eval_every": "null", "train.keep_best": "null", "train.save_every": "1000", "train.warmup": "1"}
    found: dict[str, Any] = {}
    found[f"peer, batch {size.batch}"] = peer = run_peer(small, data, size, evaluates=False)
    print("peer", peer["clips_per_second"], flush=True)
    trimmed, full = size.batches
    variants = (("trimmed", trimmed, "train", size.clips), ("full", full, "dev", size.fewer))
    for compiles, (window, batch, split, clips) in product(size.compiles, variants):
        epoch = clips // batch + 1  # its first batch is a shorter one
        changes = {
            "data.train": f"[{data}/{split}.jsonl]",
            "model.window": window,
            "batches.micro_utterances": str(batch),
            "train.compile": str(compiles).lower(),
            "train.steps": str(3 * epoch + 1),
        }
        variant = f"{window}, batch {batch}{', compiled' if compiles else ''}"
        recipe = write_recipe(variant.replace(", ", "-").replace(" ", ""), small, data, {**quiet, **changes}, size)
        torch.compiler.reset()  # what was compiled for the one would serve the other, as in no user's process
        found[variant] = run_attune(recipe, clips, size, stops_early=True)
        print(variant, found[variant]["clips_per_second"], flush=True)
    return found


def greedy(weights: Path, size: Size) -> dict[str, Any]:
    """Utterances per second of greedy decoding to 40 tokens, beside `generate`, and whether the tokens agree."""
    small, data = small_shapes(weights, size)
    rows = [json.loads(line) for line in (data / "dev.jsonl").read_text().splitlines()]
    audio = [soundfile.read(data / row["audio"], dtype="float32")[0] for row in rows[:512]]
    both = Both(open_model(small, size), open_peer(small, size), WhisperProcessor.from_pretrained(weights), size)
    found: dict[str, Any] = {}
    for dtype, sizes in size.greedy:
        both.ours.to(dtype), both.theirs.to(dtype)
        for count in sizes:
            found[f"{dtype} batch {count}"] = greedy_once(both, audio[:count], dtype)
    return found


def exact(weights: Path, data: Path, size: Size) -> dict[str, Any]:
    """Real weights and real speech in fp32: the same tokens as `generate`; and two strict runs, the same bits."""
    rows = [json.loads(line) for line in (data / "dev.jsonl").read_text().splitlines()]
    audio = [soundfile.read(data / row["audio"], dtype="float32")[0] for row in rows]
    both = Both(open_model(weights, size), open_peer(weights, size), WhisperProcessor.from_pretrained(weights), size)
    found = {"real weights": greedy_once(both, audio, torch.float32)}
    steps, sums = size.strict_steps, []
    quiet = {"train.eval_every": "null", "train.keep_best": "null", "train.save_every": str(steps)}
    for attempt in (1, 2):
        changes = {"train.strict": "true", "train.steps": str(steps), "train.warmup": "1", **quiet}
        recipe = write_recipe(f"strict-{attempt}", weights, data, changes, size)
        run_attune(recipe, len(rows), size)
        sums.append(sha256(Path(recipe.run) / f"checkpoints/step-{steps:06}/model.safetensors"))
    return {**found, "strict runs are equal": sums[0] == sums[1]}


def open_model(weights: Path, size: Size) -> WhisperModel:
    """A model for full windows on the device."""
    write_recipe("opened", weights, size.scratch / "clips", {}, size)
    subject = open_eval_target(str(size.scratch / "opened.yaml"), ["model.window=full"], size.site())
    model = load_eval_target(subject.pretrained, size.site(), size.world).task_model.model
    if not isinstance(model, WhisperModel):
        raise SystemExit(f"{weights} is not a Whisper.")
    return model.eval()


def open_peer(weights: Path, size: Size) -> Any:
    """The same in transformers."""
    return WhisperForConditionalGeneration.from_pretrained(weights, dtype=torch.float32).to(size.device).eval()  # type: ignore[arg-type]


@dataclass(frozen=True)
class Both:
    """One model, as attune and as transformers have it."""

    ours: WhisperModel
    theirs: Any
    processor: Any
    size: Size


def greedy_once(both: Both, audio: list[Any], dtype: torch.dtype) -> dict[str, Any]:
    """The speed of both on a batch, and whether their tokens are the same."""
    model, processor, size = both.ours, both.processor, both.size
    prefix = (model.rules.start, processor.tokenizer.convert_tokens_to_ids("<|notimestamps|>"))
    batch = collate([LoadedRow(str(number), samples, prefix) for number, samples in enumerate(audio)])
    features = processor.feature_extractor(audio, sampling_rate=16_000, return_tensors="pt").input_features
    if size.device.type == "cuda":  # in the memory that each loader would have it in
        batch, features = batch.pin_memory(), features.pin_memory()

    def ours() -> list[list[int]]:
        with torch.inference_mode():
            scorer = model.scorer(batch.to(size.device))
            scorer.limits = [size.tokens] * len(audio)
            return [list(require_hypothesis(each).tokens) for each in search(scorer, Search("greedy"))]

    def theirs() -> list[list[int]]:
        with torch.inference_mode():
            ready = features.to(size.device, dtype, non_blocking=True)
            # Under the same rules: transformers alone would let random weights say timestamps.
            rules = {"suppress_tokens": list(model.rules.never)}
            tokens = both.theirs.generate(ready, max_new_tokens=size.tokens, do_sample=False, num_beams=1, **rules)
        end = processor.tokenizer.eos_token_id
        rows = [row[2:] if row[0] == prefix[0] else row for row in tokens.tolist()]
        return [row[: row.index(end)] if end in row else row for row in rows]

    speeds, said = {}, {}
    for who, run in (("attune", ours), ("peer", theirs)):
        run()
        wait(size.device)
        start = time.perf_counter()
        said[who] = run()
        wait(size.device)
        speeds[f"{who}_utterances_per_second"] = round(len(audio) / (time.perf_counter() - start), 1)
    pairs = list(zip(said["attune"], said["peer"], strict=True))
    sure = max(1, size.tokens - 2)
    differing = [row for row, (one, other) in enumerate(pairs) if one[:sure] != other[:sure]]
    margins = [_margin(both, batch, row, *pairs[row]) for row in differing] if dtype == torch.float32 else []
    return {**speeds, "same_tokens": f"{len(audio) - len(differing)} of {len(audio)}", "margins": margins}


def _margin(both: Both, batch: Batch, row: int, ours: list[int], theirs: list[int]) -> float | None:
    """How much more probable the model finds its own token than the peer's, in nats, where they first differ.

    None: one has the other's tokens, and more.
    """
    differ = (place for place, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other)
    if (place := next(differ, None)) is None:
        return None
    alone = replace(batch.with_tensors(lambda tensor: tensor[row : row + 1]), ids=batch.ids[:1])
    with torch.inference_mode():
        scorer = both.ours.scorer(alone.to(both.size.device))
        said = torch.tensor([[*scorer.prefixes[0], *ours[:place]]], device=both.size.device)
        log_probs = scorer.advance(said)[0]
    return float(log_probs[ours[place]] - log_probs[theirs[place]])


def main() -> None:
    """Run what was asked for, and write results.json after each part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("an4", type=Path)
    parser.add_argument("out", type=Path)
    parts = "an4,an4-saving,peer,peer-at-our-lr,speed,greedy,exact"
    parser.add_argument("--parts", type=lambda text: text.split(","), default=parts, help=parts)
    parser.add_argument("--scratch", type=Path, default=Path(f"/dev/shm/attune-bench-{os.getpid()}"))
    parser.add_argument("--tiny", action="store_true", help="a few clips and steps")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    size = tiny(given.scratch, usual()) if given.tiny else Size(given.scratch, usual(), SMALL)
    try:
        run_parts(given.weights, given.an4, given.out, given.parts, size)
    finally:
        shutil.rmtree(given.scratch, ignore_errors=True)


def run_parts(weights: Path, an4: Path, out: Path, parts: list[str], size: Size) -> None:
    """One part after the other; the first that fails ends the run, after those before it were written."""
    data = prepare_an4(an4, size)
    clips = len((data / "train.jsonl").read_text().splitlines())
    recipe = partial(write_recipe, weights=weights, data=data, size=size)
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "an4": lambda: run_attune(recipe("an4", changes={"train.keep_best": "null"}), clips, size),
        "an4-saving": lambda: run_attune(recipe("an4-saving", changes={}), clips, size),
        "peer": lambda: run_peer(weights, data, size, evaluates=True),
        "peer-at-our-lr": lambda: run_peer(weights, data, size, evaluates=True, lr=LR),
        "speed": lambda: speed(weights, size),
        "greedy": lambda: greedy(weights, size),
        "exact": lambda: exact(weights, data, size),
    }
    results: dict[str, Any] = {"device": name(size.device), "torch": torch.__version__}
    out.mkdir(parents=True, exist_ok=True)
    for part in parts:
        results[part] = work[part]()
        print(part, json.dumps(results[part]), flush=True)
        (out / "results.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
