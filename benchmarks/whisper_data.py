"""What the benchmark of Whisper runs on: how much of it, AN4 as wav files, and random weights of small's shapes."""

import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from attune.audio.decode import read_audio
from attune.site import Site
from attune.sources import Cache
from attune.world import World, choose_device

SMALL = {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "encoder_layers": 12, "decoder_layers": 12,
         "encoder_attention_heads": 12, "decoder_attention_heads": 12}  # fmt: skip
TINY = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How much is run."""

    scratch: Path
    device: torch.device
    shape: dict[str, int]
    batch: int = 32
    steps: int = 520
    warmup: int = 50
    eval_every: int = 26  # an epoch
    peer_steps: int = 40
    peer_after: int = 32  # its first steps are not counted
    strict_steps: int = 60
    clips: int = 8192
    batches: tuple[int, int] = (128, 64)  # trimmed, full
    compiles: tuple[bool, ...] = (True, False)
    greedy: tuple[tuple[torch.dtype, tuple[int, ...]], ...] = (
        (torch.float32, (64,)),
        (torch.bfloat16, (16, 128, 256, 512)),
    )
    tokens: int = 40
    workers: int = 14
    peer_workers: int = 8
    seconds: float = 12.0  # of the longest random clip

    @property
    def fewer(self) -> int:
        """Clips for what takes long."""
        return self.clips // 8

    @property
    def world(self) -> World:
        """This process alone."""
        return World(0, 1, choose_device(self.device.type))

    def site(self) -> Site:
        """Where all of it runs."""
        return Site(Cache(self.scratch / "cache"), workers=self.workers, device=self.device.type)


def tiny(scratch: Path, device: torch.device) -> Size:
    """The same in seconds on a CPU."""
    small = {"batch": 2, "steps": 2, "warmup": 1, "eval_every": 1, "peer_steps": 3, "peer_after": 1, "strict_steps": 2}
    few = {"clips": 16, "tokens": 3, "workers": 0, "peer_workers": 0, "seconds": 2.0}
    greedy = ((torch.float32, (2,)), (torch.bfloat16, (2,)))
    return replace(Size(scratch, device, TINY), **small, **few, batches=(2, 1), compiles=(False,), greedy=greedy)  # type: ignore[arg-type]


def as_wav(row: dict[str, Any], source: Path, target: Path) -> dict[str, Any]:
    """One utterance as a wav file, which costs next to nothing to read."""
    samples = read_audio(source / row["audio"])
    soundfile.write(target / f"{row['id']}.wav", samples, 16_000)
    return {**row, "audio": f"{row['id']}.wav", "seconds": len(samples) / 16_000, "text": row["text"].lower()}


def prepare_an4(an4: Path, size: Size) -> Path:
    """AN4 as wav files with lower-case transcripts."""
    target = size.scratch / "an4"
    target.mkdir(parents=True)
    with ProcessPoolExecutor(max(1, size.workers)) as pool:
        for split in ("train", "dev"):
            rows = [json.loads(line) for line in (an4 / f"{split}.jsonl").read_text().splitlines()]
            done = pool.map(as_wav, rows, [an4] * len(rows), [target] * len(rows), chunksize=16)
            (target / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in done))
    return target


def small_shapes(weights: Path, size: Size) -> tuple[Path, Path]:
    """Random weights of Whisper small's shapes, and clips of 5.2 s on average."""
    folder, data = size.scratch / "small", size.scratch / "clips"
    if folder.exists():
        return folder, data
    shutil.copytree(weights, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = WhisperConfig.from_pretrained(weights)
    for key, value in size.shape.items():
        setattr(config, key, value)
    torch.manual_seed(0)
    generation = WhisperForConditionalGeneration.from_pretrained(weights).generation_config
    model = WhisperForConditionalGeneration(config)
    model.generation_config = generation
    model.save_pretrained(folder)
    data.mkdir()
    with ProcessPoolExecutor(max(1, size.workers)) as pool:
        rows = list(pool.map(partial(random_clip, data, size.seconds), range(size.clips), chunksize=64))
    for split, count in (("train", size.clips), ("dev", size.fewer)):
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
    return folder, data


def random_clip(folder: Path, longest: float, number: int) -> dict[str, Any]:
    """Noise of 1.5 to 12 s, and two words for each of them."""
    random = np.random.default_rng(number)
    seconds = min(max(random.gamma(6, 0.87), 1.5), longest)
    samples = random.standard_normal(int(seconds * 16_000)).astype(np.float32) * 0.05
    soundfile.write(folder / f"{number}.wav", samples, 16_000)
    text = " ".join(random.choice(["enter", "yes", "nine", "two", "stop", "go", "erase"], int(seconds * 2) + 1))
    return {"id": str(number), "audio": f"{number}.wav", "seconds": len(samples) / 16_000, "text": text}
