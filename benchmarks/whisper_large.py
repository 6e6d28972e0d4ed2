"""Whisper large's shapes on one device: peak memory and clips per second beside transformers and peft, in one run.

    python benchmarks/whisper_large.py OUT [--batch 8] [--steps 12]

Random weights (1.54 B), clips of 5 s in full windows, bf16. Peaks are what torch has allocated at once; `predicted` is
what `attune check --fit` says beforehand. Needs a CUDA device, and peft for its part.
"""

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attune import recipe as recipes
from attune.site import Site
from attune.sources import Cache
from attune.stages.context import Stepped
from attune.stages.fit import check_fit
from attune.stages.train import Request, train
from attune.world import World, choose_device

from tiny_whisper import MULTILINGUAL, write_whisper

SCRATCH = Path("/dev/shm/attune-large")
LARGE = {
    "d_model": 1280,
    "encoder_layers": 32,
    "decoder_layers": 32,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
    "max_target_positions": 448,
}
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


def prepare(batch: int) -> Path:
    """Random weights, and four batches of clips."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    write_whisper(SCRATCH / "large", MULTILINGUAL, mels=128, **LARGE)
    random = np.random.default_rng(0)
    rows = []
    for number in range(4 * batch):
        soundfile.write(SCRATCH / f"{number}.wav", random.standard_normal(80_000).astype(np.float32) * 0.05, 16_000)
        rows.append({"id": str(number), "audio": f"{number}.wav", "seconds": 5.0, "text": "one two three four five"})
    (SCRATCH / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SCRATCH / "large"


def run_attune(weights: Path, name: str, changes: list[str], batch: int, steps: int) -> dict[str, Any]:
    """Train so many steps; the first four are not counted."""
    path = SCRATCH / "recipe.yaml"
    run, data = SCRATCH / "runs" / str(abs(hash(name))), SCRATCH / "train.jsonl"
    path.write_text(RECIPE.format(run=run, data=data, weights=weights, batch=batch, steps=steps))
    recipe = recipes.load(path, changes).recipe
    site = Site(Cache(SCRATCH / "cache"), workers=4, device="cuda")
    fit = check_fit(recipe, site)
    start_measuring()
    times = []
    for event in train(recipe, Request(["benchmark"]), site, World(0, 1, choose_device("cuda"))):
        if isinstance(event, Stepped):
            times.append(time.perf_counter())
            if len(times) == steps:
                break
    found = measured(times, batch)
    predicted = round(fit.peak / 2**30, 2) if fit.peak else None
    return {**found, "predicted_gib": predicted, "proposed batch": fit.proposed}


def run_peer(weights: Path, name: str, batch: int, steps: int) -> dict[str, Any]:
    """The same in a plain loop of transformers: bf16 autocast, checkpointing, fused AdamW or peft's LoRA."""
    from transformers import WhisperForConditionalGeneration

    start_measuring()
    model = WhisperForConditionalGeneration.from_pretrained(weights, dtype=torch.float32).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.config.use_cache = False
    if "LoRA" in name:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=32, target_modules=["q_proj", "v_proj"]))
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-5, fused=True)
    features = torch.randn(batch, 128, 3000, device="cuda")
    labels = torch.randint(0, 1000, (batch, 32), device="cuda")
    model.train()
    times = []
    for _ in range(steps):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_features=features, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(time.perf_counter())
    return measured(times, batch)


def start_measuring() -> None:
    """Forget what came before."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def measured(times: list[float], batch: int) -> dict[str, Any]:
    """Clips per second after the first steps, and the peak."""
    return {
        "clips_per_second": round(batch * (len(times) - 4) / (times[-1] - times[3]), 1),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2),
    }


def main() -> None:
    """Measure every variant, attune first, and write results.json after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    weights = prepare(arguments.batch)
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "batch": arguments.batch}
    for name, changes in VARIANTS.items():
        peer = name.replace("8-bit AdamW", "AdamW in 32 bits")
        parts = {
            f"attune, {name}": lambda name=name, changes=changes: run_attune(
                weights, name, changes, arguments.batch, arguments.steps
            ),
            f"transformers, {peer}": lambda name=name: run_peer(weights, name, arguments.batch, arguments.steps),
        }
        for label, part in parts.items():
            try:
                found[label] = part()
            except Exception as error:
                found[label] = f"{type(error).__name__}: {error}"
            print(label, json.dumps(found[label]), flush=True)
            (arguments.out / "large.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
