"""Whisper large's shapes on one device: peak memory and clips per second beside transformers and peft, in one run.

    python benchmarks/whisper_large.py OUT [--batches 8,32] [--steps 12]

Random weights (1.54 B), clips of 5 s in full windows, bf16. Peaks are what torch has allocated at once; `predicted` is
what `attune check --fit` says beforehand. peft is needed for its part; `--tiny` is to try the script on a CPU.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attune import recipe as recipes
from attune.errors import TrainingError
from attune.site import Site
from attune.sources import Cache
from attune.stages.context import Stepped
from attune.stages.fit import check_fit
from attune.stages.train import Request, train
from attune.world import World, choose_device

from on_device import forget, name, peak_gib, usual, wait
from tiny_whisper import ENGLISH_ONLY, MULTILINGUAL, write_whisper

DEVICE = usual()
LARGE = {
    "d_model": 1280,
    "encoder_layers": 32,
    "decoder_layers": 32,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
    "max_target_positions": 448,
    "vocabulary": MULTILINGUAL,
}
TINY = {"vocabulary": ENGLISH_ONLY, "max_target_positions": 448}
VARIANTS = {
    "checkpointing, 8-bit AdamW": ["optimizer.name=adamw8bit"],
    "checkpointing, LoRA (rank 32)": ["adapt.method=lora", "adapt.rank=32"],
}
RECIPE = """\
run: {run}
data: {{train: [{data}]}}
task: {{name: transcribe, language: en}}
model: {{family: whisper, weights: {weights}, window: full, gradient_checkpointing: true}}
batches: {{micro_utterances: {batch}}}
optimizer: {{lr: 1e-5}}
train: {{steps: {steps}, warmup: 1, precision: bf16, eval_every: null, keep_best: null, save_every: 1000}}
"""


def prepare(scratch: Path, rows: int, shape: dict[str, int]) -> Path:
    """Random weights, and so many clips."""
    scratch.mkdir(parents=True)
    weights: Path = write_whisper(scratch / "large", mels=128, **shape)
    random = np.random.default_rng(0)
    listed = []
    for number in range(rows):
        soundfile.write(scratch / f"{number}.wav", random.standard_normal(80_000).astype(np.float32) * 0.05, 16_000)
        listed.append({"id": str(number), "audio": f"{number}.wav", "seconds": 5.0, "text": "one two three four five"})
    (scratch / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in listed))
    return weights


def run_attune(weights: Path, changes: list[str], batch: int, steps: int) -> dict[str, Any]:
    """Train so many steps; the first are not counted."""
    scratch = weights.parent
    path, run = scratch / "recipe.yaml", scratch / "run"
    shutil.rmtree(run, ignore_errors=True)
    path.write_text(RECIPE.format(run=run, data=scratch / "train.jsonl", weights=weights, batch=batch, steps=steps))
    recipe = recipes.load(path, changes).recipe
    site = Site(Cache(scratch / "cache"), workers=4 if DEVICE.type == "cuda" else 0, device=DEVICE.type)
    fit = check_fit(recipe, site)
    forget(DEVICE)
    times = list[float]()
    for event in train(recipe, Request(["benchmark"]), site, World(0, 1, choose_device(DEVICE.type))):
        if isinstance(event, Stepped):
            times.append(time.perf_counter())
            if len(times) == steps:
                break
    predicted = round(fit.peak / 2**30, 2) if fit.peak else None
    return {**measured(times, batch), "predicted_gib": predicted, "proposed batch": fit.proposed}


def run_peer(weights: Path, has_lora: bool, batch: int, steps: int) -> dict[str, Any]:
    """The same in a plain loop of transformers: bf16 autocast, checkpointing, fused AdamW or peft's LoRA."""
    from transformers import WhisperForConditionalGeneration

    forget(DEVICE)
    model: Any = WhisperForConditionalGeneration.from_pretrained(weights, dtype=torch.float32)
    model.to(DEVICE)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.config.use_cache = False
    if has_lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=32, target_modules=["q_proj", "v_proj"]))
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-5, fused=True)
    features = torch.randn(batch, 128, 3000, device=DEVICE)
    labels = torch.randint(0, 1000, (batch, 32), device=DEVICE)
    model.train()
    times = list[float]()
    for _ in range(steps):
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = model(input_features=features, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        wait(DEVICE)
        times.append(time.perf_counter())
    return measured(times, batch)


def measured(times: list[float], batch: int) -> dict[str, Any]:
    """Clips per second after the first third of the steps, and the peak."""
    after = max(1, len(times) // 3)
    speed = batch * (len(times) - after) / (times[-1] - times[after - 1])
    return {"clips_per_second": round(speed, 1), "peak_gib": peak_gib(DEVICE)}


def run_part(label: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """What was found; that memory was not enough is a finding, too."""
    try:
        found: dict[str, Any] | str = run()
    except (torch.OutOfMemoryError, TrainingError) as error:
        found = f"out of memory: {error}"[:200]
    print(label, json.dumps(found), flush=True)
    return found


def main() -> None:
    """Measure every variant, attune first, and write large.json after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--batches", type=lambda text: [int(each) for each in text.split(",")], default=[8, 32])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--scratch", type=Path, default=Path(f"/dev/shm/attune-large-{os.getpid()}"))
    parser.add_argument("--tiny", action="store_true", help="a few weights, and a batch of one")
    given = parser.parse_args()
    if given.tiny:
        given.batches, given.steps = [1], 2
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"device": name(DEVICE), "torch": torch.__version__}
    try:
        weights = prepare(given.scratch, 4 * max(given.batches), TINY if given.tiny else LARGE)
        for batch, (variant, changes) in product(given.batches, VARIANTS.items()):
            sizes = {"batch": batch, "steps": given.steps}
            peer = variant.replace("8-bit AdamW", "AdamW in 32 bits")
            parts = {
                f"attune, {variant}": partial(run_attune, weights, changes, **sizes),
                f"transformers, {peer}": partial(run_peer, weights, "LoRA" in variant, **sizes),
            }
            for part, run in parts.items():
                label = f"{part}, batch {batch}"
                found[label] = run_part(label, run)
                (given.out / "large.json").write_text(json.dumps(found, indent=1))
    finally:
        shutil.rmtree(given.scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
