"""Training a head on the weighted sum of all layers of a frozen HuBERT, beside a plain transformers loop.

    python benchmarks/upstreams.py OUT [--size base] [--clips 512] [--batch 32] [--workers 8] [--compile]

OUT is where upstreams.json and the kept features go. Random weights of the size named, noise of 2 to 16 s, bf16, the
same head and optimizer for all. An epoch is forward, backward and a step for every batch, after one to warm up.

- plain: transformers' model in bf16 with SDPA and an attention mask, without gradient; all hidden states are stacked
  and summed with softmax weights. Batches of `--batch` clips in random order, as S3PRL and Trainer make them.
- attune, same batches: attune's model on exactly those batches.
- attune: on batches of similar lengths, as attune plans them.
- kept: the next epochs with model.cache, read by `--workers` processes: one layer, a fixed sum, and every layer.
- held: the same with model.cache_device_gb, which keeps them in the device's memory; every layer has learned weights.

`tiny` is to try the script on a CPU.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attune.batches.collate import pad
from attune.batches.load import Reader, load
from attune.batches.micro_batch import MicroBatchPlan, Position
from attune.batches.plan import Budget, plan_epoch
from attune.families.ssl import FAMILY, SslConfig
from attune.families.ssl.cache import StoredFeatures, key_of
from attune.families.ssl.frozen import FrozenUpstream
from attune.families.ssl.model import SslModel
from attune.tasks.classify import LABELS, Classify, ClassifyConfig
from attune.training.adapt import adapt
from attune.training.precision import compile_layers
from attune.training.settings import AdaptConfig
from attune.types import SAMPLE_RATE, Batch, CachedFeatures, TokenTargets, Utterance

from on_device import usual, wait

SIZES: dict[str, dict[str, Any]] = {
    "base": {},
    "tiny": {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64,
             "conv_dim": [16] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2},
}  # fmt: skip
CLASSES = 12
CHECKPOINT = "checkpoint"
FROZEN = AdaptConfig(freeze=("upstream",))
FIXED = AdaptConfig(freeze=("upstream", "featurizer"))
KEPT = {"one layer": (FROZEN, -1), "fixed sum": (FIXED, None), "every layer": (FROZEN, None)}
MEAN_SECONDS = 8.0
EPOCHS_AT_ONCE = 20
HELD_GB = 20


@dataclass(frozen=True)
class Clips:
    """Noise of different lengths, on the CPU."""

    audio: list[Tensor]
    labels: list[int]

    @property
    def seconds(self) -> np.ndarray:
        """How long each is."""
        return np.array([len(each) / SAMPLE_RATE for each in self.audio])

    def batch(self, rows: Iterable[int], device: torch.device) -> Batch:
        """These clips, padded, where they are needed."""
        chosen = list(map(int, rows))
        audio = [self.audio[row] for row in chosen]
        labels = torch.tensor([[self.labels[row]] for row in chosen])
        targets = TokenTargets(labels, torch.ones(len(chosen), dtype=torch.int64))
        lengths = torch.tensor([len(each) for each in audio])
        return Batch(tuple(map(str, chosen)), pad(audio), lengths, targets).to(device)


def make_clips(count: int) -> Clips:
    """Lengths as of read speech: 2 to 16 s, 8 s on average."""
    generator = np.random.default_rng(17)
    seconds = np.clip(generator.gamma(6, MEAN_SECONDS / 6, count), 2, 16)
    audio = [0.1 * torch.randn(round(each * SAMPLE_RATE)) for each in seconds]
    return Clips(audio, generator.integers(CLASSES, size=count).tolist())


def save_checkpoint(size: str, folder: Path) -> nn.Module:
    """transformers' HuBERT with random weights."""
    from transformers import HubertConfig, HubertModel

    torch.manual_seed(1)
    model: Any = HubertModel(HubertConfig(**SIZES[size]))
    model.eval().save_pretrained(folder)
    return model  # type: ignore[no-any-return]


def epoch_time(run: Callable[[], None], device: torch.device, epochs: int) -> float:
    """Seconds of an epoch, after one to warm up."""
    run()
    wait(device)
    start = time.perf_counter()
    for _ in range(epochs):
        run()
    wait(device)
    return (time.perf_counter() - start) / epochs


class PlainLoop(nn.Module):
    """What one writes first: all hidden states, their weighted sum, a projection, the mean and a linear layer."""

    def __init__(self, model: nn.Module, layers: int, width: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.projection, self.output = nn.Linear(width, 256), nn.Linear(256, CLASSES)
        self.model: list[Any] = [model]  # no part of this module, so that nothing of it learns

    def forward(self, batch: Batch) -> Tensor:
        """The summed loss."""
        audio, lengths = batch.audio, batch.lengths
        mask = torch.arange(audio.shape[1], device=audio.device)[None] < lengths[:, None]
        counts = lengths[:, None]
        mean = audio.sum(1, keepdim=True) / counts
        variance = ((audio - mean).square() * mask).sum(1, keepdim=True) / counts
        audio = (audio - mean) / (variance + 1e-7).sqrt() * mask
        with torch.no_grad():
            model = self.model[0]
            found = model(audio.bfloat16(), attention_mask=mask.long(), output_hidden_states=True)
        layers = torch.stack(found.hidden_states)  # (L, B, F, D)
        features = (self.weights.softmax(0)[:, None, None, None] * layers).sum(0)
        frames = model._get_feat_extract_output_lengths(lengths)
        own = torch.arange(features.shape[1], device=audio.device)[None] < frames[:, None]
        with torch.autocast(audio.device.type, dtype=torch.bfloat16):
            hidden = self.projection(features).relu() * own[..., None]
            logits = self.output(hidden.sum(1) / frames[:, None])
        return nn.functional.cross_entropy(logits.float(), batch.tokens.ids[:, 0], reduction="sum")


def trained(loss: Callable[[Batch], Tensor], weights: Iterable[nn.Parameter], batches: Iterable[Batch]) -> None:
    """An epoch."""
    optimizer = torch.optim.Adam(list(weights), lr=1e-4, fused=True)
    for batch in batches:
        optimizer.zero_grad()
        loss(batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def learning(model: nn.Module) -> list[nn.Parameter]:
    """What an optimizer gets."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def build_attune(scratch: Path, how: AdaptConfig, device: torch.device, **settings: object) -> SslModel:
    """attune's model of the same checkpoint."""
    task_folder, assets = scratch / "task", scratch / "assets"
    for folder in (task_folder, assets):
        folder.mkdir(exist_ok=True)
    (task_folder / LABELS).write_text(json.dumps([f"{number:02}" for number in range(CLASSES)]))
    config = SslConfig("hubert", **settings)  # type: ignore[arg-type]
    weights = FAMILY.importer.read(config, scratch / CHECKPOINT, assets).tensors  # type: ignore[union-attr]
    model = FAMILY.build(config, Classify(ClassifyConfig(), task_folder), assets).model
    if not isinstance(model, SslModel):
        raise SystemExit("The family of upstreams built another model.")
    model.load_state_dict(weights, strict=False)
    adapt(model, how, seed=1)
    return model.to(device).train()


def attune_loss(model: SslModel, device: torch.device) -> Callable[[Batch], Tensor]:
    """The loss as attune's loop computes it."""

    def loss(batch: Batch) -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return model.loss(batch.to(device)).total

    return loss


def kept_batches(
    clips: Clips, cache: StoredFeatures, plan: list[np.ndarray], workers: int, device: torch.device
) -> Iterator[Batch]:
    """Batches as attune's readers make them of kept features."""
    utterances = as_utterances(clips)
    reader = Reader(utterances, lambda row: (clips.labels[int(row.id)],), cached=cache.lookup(), held=cache.held)
    micros = (MicroBatchPlan(Position(), 0, rows) for rows in plan)
    for loaded in load(reader, micros, workers, pins=device.type == "cuda"):
        if loaded.batch is None or loaded.batch.cached is None or loaded.batch.cached.counts is None:
            raise SystemExit("features that should have been kept are not there")
        yield loaded.batch


def as_utterances(clips: Clips) -> list[Utterance]:
    """Manifest rows of the clips, whose audio is nowhere to be read."""
    return [
        Utterance(str(row), len(audio) / SAMPLE_RATE, audio=f"mem://{row}") for row, audio in enumerate(clips.audio)
    ]


def fill(model: SslModel, clips: Clips, plan: list[np.ndarray], device: torch.device) -> None:
    """The first epoch, which writes the features."""
    utterances, loss = as_utterances(clips), attune_loss(model, device)
    with torch.no_grad():
        for rows in plan:
            keys = tuple(str(key_of(utterances[int(row)])) for row in rows)
            loss(replace(clips.batch(rows, device), cached=CachedFeatures(keys)))
    if model.cache:
        model.cache.flush()


def parts(model: SslModel, batch: Batch, device: torch.device) -> dict[str, float]:
    """Milliseconds of the front-end, the positional convolution and the layers, in bf16."""
    from copy import deepcopy

    upstream: Any = deepcopy(model.upstream)
    upstream.to(torch.bfloat16).eval()
    with torch.no_grad():
        frames, _ = upstream.feature_extractor(batch.audio, batch.lengths)
        hidden = upstream.feature_projection(frames)
        beyond = torch.zeros(*hidden.shape[:2], 1, dtype=torch.bool, device=device)
        mask = ~beyond[:, None, None, :, 0]

        def through_layers() -> None:
            state = hidden
            for layer in upstream.encoder.layers:
                state = layer(state, mask, None)

        timed = {
            "front-end": lambda: upstream.feature_extractor(batch.audio, batch.lengths),
            "positional convolution": lambda: upstream.encoder.pos_conv_embed(hidden, beyond),
            "layers": through_layers,
        }
        return {name: 1000 * epoch_time(run, device, 3) for name, run in timed.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--clips", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--compile", action="store_true", help="measure attune with train.compile as well")
    parser.add_argument("--device", default=usual().type)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    device, clips = torch.device(options.device), make_clips(options.clips)
    figures: dict[str, float] = {}

    def report(name: str, seconds: float) -> None:
        figures[name] = options.clips / seconds
        times = figures[name] / figures["plain"]
        print(f"{name:34} {figures[name]:9.1f} clips/s  {times:6.2f} times plain", flush=True)

    batches = make_batches(options, clips)
    with tempfile.TemporaryDirectory(dir=options.out) as name:
        measure_plain(options, Path(name), device, batches, report)
        measure_attune(options, Path(name), device, batches, report)
        measure_kept(options, Path(name), device, clips, batches.plan, report)
    written = {"size": options.size, "clips_per_second": figures}
    (options.out / "upstreams.json").write_text(json.dumps(written, indent=1))


@dataclass(frozen=True)
class Batches:
    """The clips in batches of random and of similar lengths."""

    at_random: list[Batch]
    similar: list[Batch]
    plan: list[np.ndarray]  # of the latter


def make_batches(options: argparse.Namespace, clips: Clips) -> Batches:
    """As others make them, and as attune plans them; about as much audio in each."""
    shuffled = np.random.default_rng(3).permutation(options.clips)
    random_plan = np.array_split(shuffled, max(1, options.clips // options.batch))
    budget = Budget(options.batch * 1.2 * MEAN_SECONDS, None, 1)
    cut = plan_epoch(clips.seconds, np.arange(options.clips), budget, seed=17, epoch=0)
    plan = [cut.order[begin:end] for begin, end in zip(cut.bounds[:-1], cut.bounds[1:], strict=True)]
    cpu = torch.device("cpu")
    made = ([clips.batch(rows, cpu) for rows in each] for each in (random_plan, plan))
    # In the memory that each loader would have them in.
    at_random, similar = ([each.pin_memory() for each in some] if options.device == "cuda" else some for some in made)
    return Batches(at_random, similar, plan)


Report = Callable[[str, float], None]


def measure_plain(
    options: argparse.Namespace, scratch: Path, device: torch.device, batches: Batches, report: Report
) -> None:
    """transformers."""
    reference = save_checkpoint(options.size, scratch / CHECKPOINT).to(device, torch.bfloat16)
    config: Any = reference.config
    plain = PlainLoop(reference, config.num_hidden_layers + 1, config.hidden_size).to(device)

    def loss(batch: Batch) -> Tensor:
        found: Tensor = plain(batch.to(device))
        return found

    for name, chosen in (("plain", batches.at_random), ("plain, similar lengths", batches.similar)):
        report(name, epoch_time(partial(trained, loss, learning(plain), chosen), device, 1))


def measure_attune(
    options: argparse.Namespace, scratch: Path, device: torch.device, batches: Batches, report: Report
) -> None:
    """attune, with nothing kept."""
    model = build_attune(scratch, FROZEN, device)
    loss = attune_loss(model, device)
    for name, chosen in (("attune, same batches", batches.at_random), ("attune", batches.similar)):
        report(name, epoch_time(partial(trained, loss, learning(model), chosen), device, 1))
    first = batches.similar[0].to(device)
    for part, milliseconds in parts(model, first, device).items():
        print(
            f"  {part}: {milliseconds:.2f} ms for {int(first.lengths.sum()) / SAMPLE_RATE:.0f} s of audio", flush=True
        )
    if options.compile:
        compile_layers(model)
        model.frozen = FrozenUpstream(model.upstream, model.featurizer)  # its copy is to be compiled too
        loss = attune_loss(model, device)
        report("attune, compiled", epoch_time(partial(trained, loss, learning(model), batches.similar), device, 1))


def measure_kept(
    options: argparse.Namespace,
    scratch: Path,
    device: torch.device,
    clips: Clips,
    plan: list[np.ndarray],
    report: Report,
) -> None:
    """Epochs after the first, with kept features."""
    for kind, (how, layers) in KEPT.items():
        settings = {"cache": str(scratch / kind.replace(" ", "-")), "layers": layers}
        fill(build_attune(scratch, how, device, **settings), clips, plan, device)
        for name, gigabytes in (("kept", 0), ("held", HELD_GB)):
            model = build_attune(scratch, how, device, **settings, cache_device_gb=gigabytes)
            epoch = partial(kept_epochs, options, device, clips, plan, model)
            report(f"{name}, {kind}", epoch_time(epoch, device, 1) / EPOCHS_AT_ONCE)


def kept_epochs(
    options: argparse.Namespace, device: torch.device, clips: Clips, plan: list[np.ndarray], model: SslModel
) -> None:
    """Several epochs in one go: readers start once for a run, not for each epoch."""
    if model.cache is None:
        raise SystemExit("no features are kept")
    batches = kept_batches(clips, model.cache, plan * EPOCHS_AT_ONCE, options.workers, device)
    trained(attune_loss(model, device), learning(model), batches)


if __name__ == "__main__":
    main()
