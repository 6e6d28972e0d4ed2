"""Whisper beside transformers, in one run: fine-tuning on real speech, training speed, greedy decoding.

    python benchmarks/whisper.py WEIGHTS AN4 OUT [an4|an4-saving|peer|peer-at-our-lr|speed|greedy|exact …]

WEIGHTS is real Whisper tiny.en in transformers' format, AN4 a folder with train.jsonl and dev.jsonl, OUT where
results.json goes. Needs a CUDA device; the peer is transformers' Seq2SeqTrainer with its usual collator on ready-made
features. Both clocks start when model, data and libraries are there, and stop after the last evaluation; neither saves
anything meanwhile (attune's last checkpoint, written before the last evaluation is announced, is subtracted), except in
`an4-saving`, which is a run as a user would have it. Clips per second are over whole epochs, as batches differ in size,
after the first one, in which most shapes are seen for the first time and recorded when they come again; waiting for
data is included.
"""

import json
import shutil
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import torch._dynamo  # any optimizer imports it; the peer has it before its clock starts
import transformers
from transformers import TrainerCallback, WhisperConfig, WhisperForConditionalGeneration, WhisperProcessor
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

from attune import recipe as recipes
from attune.api import score
from attune.audio.decode import read_audio
from attune.batches.collate import collate
from attune.decoding.search import Search, search
from attune.files import sha256
from attune.site import Site
from attune.sources import Cache
from attune.stages.context import Evaluated, Stepped
from attune.stages.eval_target import load_eval_target, open_eval_target
from attune.stages.train import Request, train
from attune.types import LoadedRow
from attune.world import World, choose_device

SCRATCH = Path("/dev/shm/attune-bench")
BATCH = 32
LR, PEER_LR = 3e-5, 5e-5  # the better of 2e-5, 3e-5 and 5e-5 over seeds; the usual one
CLIPS, AN4_CLIPS = 8192, 821
FEWER = CLIPS // 8  # for what takes long


def as_wav(row: dict[str, Any], source: Path, target: Path) -> dict[str, Any]:
    """One utterance as a wav file, which costs next to nothing to read."""
    samples = read_audio(source / row["audio"])
    soundfile.write(target / f"{row['id']}.wav", samples, 16_000)
    return {**row, "audio": f"{row['id']}.wav", "seconds": len(samples) / 16_000, "text": row["text"].lower()}


def prepare_an4(an4: Path) -> Path:
    """AN4 as wav files with lower-case transcripts."""
    target = SCRATCH / "an4"
    target.mkdir(parents=True)
    with ProcessPoolExecutor(14) as pool:
        for split in ("train", "dev"):
            rows = [json.loads(line) for line in (an4 / f"{split}.jsonl").read_text().splitlines()]
            done = pool.map(as_wav, rows, [an4] * len(rows), [target] * len(rows), chunksize=16)
            (target / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in done))
    return target


def write_recipe(name: str, weights: Path, data: Path, changes: dict[str, str]) -> recipes.Recipe:
    """A recipe for these weights and data."""
    path = SCRATCH / f"{name}.yaml"
    path.write_text(f"""
run: {SCRATCH}/runs/{name}
seed: 17
data: {{train: [{data}/train.jsonl], dev: [{data}/dev.jsonl]}}
task: {{name: transcribe, language: en, normalizer: basic}}
model: {{family: whisper, weights: {weights}, window: trimmed}}
batches: {{micro_utterances: {BATCH}}}
optimizer: {{lr: {LR}}}
train: {{steps: 520, warmup: 50, precision: bf16, eval_every: 26, save_every: 520, keep_best: dev.wer}}
""")
    return recipes.load(path, [f"{key}={value}" for key, value in changes.items()]).recipe


def english_wer(meant: list[str], said: list[str]) -> float:
    """The WER after Whisper's own normalizer for English."""
    normalize = EnglishTextNormalizer({})
    return round(score([normalize(text) for text in meant], [normalize(text) for text in said]).values["wer"].value, 2)


def run_attune(recipe: recipes.Recipe, clips: int, stops_early: bool = False) -> dict[str, Any]:
    """Train on so many clips; the first epoch is not counted. May stop before the last checkpoint and the export."""
    site = Site(Cache(SCRATCH / "cache"), workers=14, device="cuda")
    world = World(0, 1, choose_device("cuda"))
    torch.cuda.reset_peak_memory_stats()
    start = last = time.perf_counter()
    scores, times, scored, predictions = [], [], start, ()
    spent: dict[str, float] = {}
    ends: list[float] = []  # of epochs; the last one may not be over
    for event in train(recipe, Request(["benchmark"]), site, world):
        now = time.perf_counter()
        name = type(event).__name__  # what came before an event was done for it
        spent[name], last = spent.get(name, 0.0) + now - last, now
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
        "seconds_by_event": {name: round(value, 2) for name, value in spent.items()},
        "dev_wer": scores,
        "dev_wer_english": english_wer(*zip(*((each.reference, each.value) for each in predictions), strict=True))
        if predictions
        else None,
        "clips_per_second": round(clips * (len(ends) - 2) / (ends[-2] - ends[0]), 1),
        "epochs_counted": len(ends) - 2,
        "milliseconds_a_step": [round(1000 * (later - sooner)) for sooner, later in pairwise(times[:400])],
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }


class Features(torch.utils.data.Dataset):
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
        return batch


class StepTimes(TrainerCallback):
    """Notes when each step of the peer has ended."""

    def __init__(self, times: list[float]) -> None:
        self.times = times

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """A step has ended."""
        torch.cuda.synchronize()
        self.times.append(time.perf_counter())


def run_peer(
    weights: Path, data: Path, steps: int, after: int, evaluates: bool, ready: bool, lr: float = PEER_LR
) -> dict[str, Any]:
    """Seq2SeqTrainer on the same data; clips are counted after some steps."""
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

    processor = WhisperProcessor.from_pretrained(weights)
    model = WhisperForConditionalGeneration.from_pretrained(weights, dtype=torch.float32)
    train_set = Features(processor, data / "train.jsonl", ready)
    dev_set = Features(processor, data / "dev.jsonl", ready) if evaluates else None
    wers, english = [], []

    def measure(prediction: Any) -> dict[str, float]:
        labels = np.where(prediction.label_ids == -100, processor.tokenizer.pad_token_id, prediction.label_ids)
        said = processor.tokenizer.batch_decode(prediction.predictions, skip_special_tokens=True)
        meant = processor.tokenizer.batch_decode(labels, skip_special_tokens=True)
        wers.append(round(score(meant, said, normalizer="basic").values["wer"].value, 2))
        english.append(english_wer(meant, said))
        return {"wer": wers[-1]}

    arguments = Seq2SeqTrainingArguments(
        output_dir=str(SCRATCH / "peer"), per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH,
        learning_rate=lr, warmup_steps=50, max_steps=steps, bf16=True, weight_decay=0.0, seed=42,
        eval_strategy="epoch" if evaluates else "no", save_strategy="no", predict_with_generate=True,
        generation_max_length=225, dataloader_num_workers=8, dataloader_persistent_workers=True,
        report_to=[], logging_steps=10_000, disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(
        args=arguments, model=model, train_dataset=train_set, eval_dataset=dev_set,
        data_collator=Collator(processor, model.config.decoder_start_token_id), compute_metrics=measure,
        callbacks=[StepTimes(times := [])],
    )  # fmt: skip
    start = time.perf_counter()
    trainer.train()
    seconds = time.perf_counter() - start
    late = BATCH * (len(times) - after) / (times[-1] - times[after - 1])
    last = english[-1] if english else None
    return {
        "seconds": round(seconds, 1), "clips_per_second": round(late, 1), "dev_wer": wers, "dev_wer_english": last
    }  # fmt: skip


def small_shapes(weights: Path) -> tuple[Path, Path]:
    """Random weights of Whisper small's shapes, and clips of 5.2 s on average."""
    folder, data = SCRATCH / "small", SCRATCH / "clips"
    if folder.exists():
        return folder, data
    shutil.copytree(weights, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = WhisperConfig.from_pretrained(weights)
    config.d_model, config.encoder_ffn_dim, config.decoder_ffn_dim = 768, 3072, 3072
    config.encoder_layers = config.decoder_layers = config.encoder_attention_heads = config.decoder_attention_heads = 12
    torch.manual_seed(0)
    generation = WhisperForConditionalGeneration.from_pretrained(weights).generation_config
    model = WhisperForConditionalGeneration(config)
    model.generation_config = generation
    model.save_pretrained(folder)
    data.mkdir()
    with ProcessPoolExecutor(14) as pool:
        rows = list(pool.map(random_clip, [data] * CLIPS, range(CLIPS), chunksize=64))
    for split, count in (("train", CLIPS), ("dev", FEWER)):
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
    return folder, data


def random_clip(folder: Path, number: int) -> dict[str, Any]:
    """Noise of 1.5 to 12 s, and two words for each of them."""
    random = np.random.default_rng(number)
    seconds = min(max(random.gamma(6, 0.87), 1.5), 12.0)
    samples = random.standard_normal(int(seconds * 16_000)).astype(np.float32) * 0.05
    soundfile.write(folder / f"{number}.wav", samples, 16_000)
    text = " ".join(random.choice(["enter", "yes", "nine", "two", "stop", "go", "erase"], int(seconds * 2) + 1))
    return {"id": str(number), "audio": f"{number}.wav", "seconds": len(samples) / 16_000, "text": text}


def speed(weights: Path) -> dict[str, Any]:
    """Clips per second in training at Whisper small's shapes."""
    small, data = small_shapes(weights)
    quiet = {"train.eval_every": "null", "train.keep_best": "null", "train.save_every": "1000", "train.warmup": "1"}
    found: dict[str, Any] = {}
    found["peer, batch 32"] = run_peer(small, data, 40, 32, evaluates=False, ready=False)
    print("peer", found["peer, batch 32"]["clips_per_second"], flush=True)
    variants = (("trimmed", 128, "train", CLIPS), ("full", 64, "dev", FEWER))
    for compiles, (window, batch, split, clips) in product((True, False), variants):
        epoch = clips // batch + 1  # its first batch is a shorter one
        changes = {
            "data.train": f"[{data}/{split}.jsonl]",
            "model.window": window,
            "batches.micro_utterances": str(batch),
            "train.compile": str(compiles).lower(),
            "train.steps": str(3 * epoch + 1),
        }
        name = f"{window}, batch {batch}{', compiled' if compiles else ''}"
        recipe = write_recipe(name.replace(", ", "-").replace(" ", ""), small, data, {**quiet, **changes})
        torch.compiler.reset()  # what was compiled for the one would serve the other, as in no user's process
        found[name] = run_attune(recipe, clips, stops_early=True)
        print(name, found[name]["clips_per_second"], flush=True)
    return found


def greedy(weights: Path) -> dict[str, Any]:
    """Utterances per second of greedy decoding to 40 tokens, beside `generate`, and whether the tokens agree."""
    small, _ = small_shapes(weights)
    rows = [json.loads(line) for line in (SCRATCH / "clips/dev.jsonl").read_text().splitlines()]
    audio = [soundfile.read(SCRATCH / "clips" / row["audio"], dtype="float32")[0] for row in rows[:512]]
    model, peer = open_model(small), WhisperForConditionalGeneration.from_pretrained(small).cuda().eval()
    processor = WhisperProcessor.from_pretrained(weights)
    found: dict[str, Any] = {}
    for dtype, sizes in ((torch.float32, (64,)), (torch.bfloat16, (16, 128, 256, 512))):
        model.to(dtype), peer.to(dtype)
        for size in sizes:
            found[f"{dtype} batch {size}"] = _greedy_once(model, peer, processor, audio[:size], dtype)
    return found


def exact(weights: Path, data: Path) -> dict[str, Any]:
    """Real weights and real speech in fp32: the same tokens as `generate`; and two strict runs, the same bits."""
    rows = [json.loads(line) for line in (data / "dev.jsonl").read_text().splitlines()]
    audio = [soundfile.read(data / row["audio"], dtype="float32")[0] for row in rows]
    peer = WhisperForConditionalGeneration.from_pretrained(weights, dtype=torch.float32).cuda().eval()
    processor = WhisperProcessor.from_pretrained(weights)
    found = {"real weights": _greedy_once(open_model(weights), peer, processor, audio, torch.float32)}
    sums = []
    for attempt in (1, 2):
        changes = {"train.strict": "true", "train.steps": "60", "train.eval_every": "null", "train.keep_best": "null"}
        recipe = write_recipe(f"strict-{attempt}", weights, data, changes)
        run_attune(recipe, AN4_CLIPS)
        sums.append(sha256(Path(recipe.run) / "checkpoints/step-000060/model.safetensors"))
    return {**found, "strict runs are equal": sums[0] == sums[1]}


def open_model(weights: Path) -> Any:
    """A model for full windows on the device."""
    write_recipe("opened", weights, SCRATCH / "clips", {})
    site = Site(Cache(SCRATCH), 0, "cuda")
    subject = open_eval_target(str(SCRATCH / "opened.yaml"), ["model.window=full"], site)
    return load_eval_target(subject.pretrained, site, World(0, 1, choose_device("cuda"))).task_model.model.eval()


def _greedy_once(model: Any, peer: Any, processor: Any, audio: list[Any], dtype: torch.dtype) -> dict[str, Any]:
    prefix = (model.rules.start, processor.tokenizer.convert_tokens_to_ids("<|notimestamps|>"))
    # In the memory that each loader would have it in.
    batch = collate([LoadedRow(str(number), samples, prefix) for number, samples in enumerate(audio)]).pin_memory()
    features = processor.feature_extractor(audio, sampling_rate=16_000, return_tensors="pt").input_features.pin_memory()

    def ours() -> list[list[int]]:
        with torch.inference_mode():
            scorer = model.scorer(batch.to(torch.device("cuda")))
            scorer.limits = [40] * len(audio)
            return [list(each.tokens) for each in search(scorer, Search("greedy"))]

    def theirs() -> list[list[int]]:
        with torch.inference_mode():
            ready = features.to("cuda", dtype, non_blocking=True)
            # Under the same rules: transformers alone would let random weights say timestamps.
            rules = {"suppress_tokens": list(model.rules.never)}
            tokens = peer.generate(ready, max_new_tokens=40, do_sample=False, num_beams=1, **rules)
        end = processor.tokenizer.eos_token_id
        rows = [row[2:] if row[0] == prefix[0] else row for row in tokens.tolist()]
        return [row[: row.index(end)] if end in row else row for row in rows]

    speeds = {}
    said = {}
    for name, run in (("attune", ours), ("peer", theirs)):
        run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        said[name] = run()
        torch.cuda.synchronize()
        speeds[f"{name}_utterances_per_second"] = round(len(audio) / (time.perf_counter() - start), 1)
    pairs = list(zip(said["attune"], said["peer"], strict=True))
    differing = [row for row, (one, other) in enumerate(pairs) if one[:38] != other[:38]]
    margins = [_margin(model, batch, row, *pairs[row]) for row in differing] if dtype == torch.float32 else []
    return {**speeds, "same_tokens": f"{len(audio) - len(differing)} of {len(audio)}", "margins": margins}


def _margin(model: Any, batch: Any, row: int, ours: list[int], theirs: list[int]) -> float:
    """How much more probable the model finds its own token than the peer's, in nats, where they first differ."""
    place = next(place for place, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other)
    alone = replace(batch.with_tensors(lambda tensor: tensor[row : row + 1]), ids=batch.ids[:1])
    with torch.inference_mode():
        scorer = model.scorer(alone.to(torch.device("cuda")))
        said = torch.tensor([[*scorer.prefixes[0], *ours[:place]]], device="cuda")
        log_probs = scorer.advance(said)[0]
    return float(log_probs[ours[place]] - log_probs[theirs[place]])


def main() -> None:
    """Run what was asked for, and write results.json after each part."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    weights, an4, out, *parts = (Path(word) for word in sys.argv[1:])
    shutil.rmtree(SCRATCH, ignore_errors=True)
    data = prepare_an4(an4)
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__}
    work = {
        "an4": lambda: run_attune(write_recipe("an4", weights, data, {"train.keep_best": "null"}), AN4_CLIPS),
        "an4-saving": lambda: run_attune(write_recipe("an4-saving", weights, data, {}), AN4_CLIPS),
        "peer": lambda: run_peer(weights, data, 520, 26, evaluates=True, ready=True),
        "peer-at-our-lr": lambda: run_peer(weights, data, 520, 26, evaluates=True, ready=True, lr=LR),
        "speed": lambda: speed(weights),
        "greedy": lambda: greedy(weights),
        "exact": lambda: exact(weights, data),
    }
    for part in map(str, parts or work):
        try:
            results[part] = work[part]()
        except Exception as error:
            results[part] = f"{type(error).__name__}: {error}"
            import traceback

            traceback.print_exc()
        print(part, json.dumps(results[part]), flush=True)
        (out / "results.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
