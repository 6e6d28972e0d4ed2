"""How far every upstream is from its reference, and from itself in other batches. Prints a Markdown table.

    python benchmarks/upstream_equality.py

Checkpoints have random weights: saved by transformers, in fairseq's and S3PRL's layouts, Whisper's, a small .nemo file.
Recordings last 0.13 to some 10 s. A label head on the weighted sum of the layers decides each of them in each batch:
`labels` counts decisions that are not those of batches of one. Exits with 1 above 1e-5, or where a decision differs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "families" / "ssl"))

from test_checkpoint_files import fairseq_config, fairseq_weights
from test_encoder import layers_of_transformers

from attune import catalog
from attune.families.ssl.featurizer import LayerFeaturizer
from attune.families.ssl.upstream import UPSTREAMS, Upstream
from attune.tasks.classify.head import LabelHead

from tiny_upstreams import ENCODERS, make_encoder, save_s3prl
from tiny_whisper import write_whisper
from transducers import golden_folder
from upstream_checks import farthest, layers_of, open_upstream, recordings

LIMIT = 1e-5
SPECTRA = ("fbank", "mfcc", "mel", "linear", "spectrogram")
FAIRSEQ = ("wav2vec2", "wav2vec2-large", "hubert", "wavlm", "wavlm-large", "data2vec")
BATCHES = {  # by row numbers of the recordings
    "8": [[0, 1, 2, 3, 0, 1, 2, 3]],
    "dynamic": [[0, 0, 0, 0, 0, 0, 1, 1], [2, 2], [3]],  # as many seconds in each
    "unlike": [[3, 0], [0, 3, 0, 0]],
}
Layers = list[Tensor]
Reference = Callable[[Tensor], Layers]


@dataclass(frozen=True)
class Subject:
    """An upstream and what it is compared with."""

    name: str
    upstream: Upstream
    against: str = "–"
    reference: Reference | None = None


def subjects(folder: Path) -> Iterator[Subject]:
    """Every upstream that ships, some in several sizes and from several kinds of files."""
    for name in SPECTRA:
        yield Subject(name, catalog.find(UPSTREAMS, name).build(folder))
    for name in ENCODERS:
        yield from _encoders(name, folder / name)
    for name in ("tera", "mockingjay"):
        yield _spectral(name, folder)
    yield _whisper(folder / "whisper")
    path = golden_folder("fastconformer") / "model.nemo"
    yield Subject("nemo", open_upstream("nemo", path, _new(folder / "nemo")))


def _encoders(name: str, folder: Path) -> Iterator[Subject]:
    model, kind = make_encoder(name), ENCODERS[name][0]
    model.save_pretrained(folder / "saved")
    upstream = open_upstream(kind, folder / "saved", _new(folder / "assets"))
    yield Subject(name, upstream, "transformers", lambda row: layers_of_transformers(model, row))
    if name in FAIRSEQ:
        weights, config = fairseq_weights(model), fairseq_config(model)
        held = {"args": None, "cfg": {"model": config, "task": {"normalize": False}}, "model": weights}
        torch.save(held, folder / "model.pt")
        found = open_upstream(kind, folder / "model.pt", _new(folder / "fairseq"))
        yield Subject(f"{name}, fairseq .pt", found, "transformers", lambda row: _raw_layers(model, row))


def _raw_layers(model: transformers.PreTrainedModel, row: Tensor) -> Layers:
    """The layers of samples as they are: fairseq normalizes them with another epsilon than transformers."""
    with torch.inference_mode():
        found = model(row[None], output_hidden_states=True)
    return [*(layer[0] for layer in found.hidden_states[:-1]), found.last_hidden_state[0]]


def _spectral(name: str, folder: Path) -> Subject:
    bert = save_s3prl(name, folder / f"{name}.ckpt")
    upstream = open_upstream(name, folder / f"{name}.ckpt", _new(folder / name))

    def reference(row: Tensor) -> Layers:
        found = [layers_of(upstream, [row])[0][0][None]]
        with torch.inference_mode():
            for layer in bert.encoder.layer:
                after = layer(found[-1], torch.zeros(1, 1, 1, found[0].shape[1]))
                found.append(after[0] if isinstance(after, tuple) else after)
        return [each[0] for each in found]

    return Subject(name, upstream, "transformers' BERT layers", reference)


def _whisper(folder: Path) -> Subject:
    upstream = open_upstream("whisper", write_whisper(folder), _new(folder / "assets"))
    model = transformers.WhisperModel.from_pretrained(folder).float().eval()  # type: ignore[no-untyped-call]
    extractor = transformers.WhisperFeatureExtractor(feature_size=80)  # type: ignore[no-untyped-call]

    def reference(row: Tensor) -> Layers:
        mels = extractor(row.numpy(), sampling_rate=16_000, return_tensors="pt").input_features
        with torch.inference_mode():
            found = model.encoder(mels, output_hidden_states=True)
        return [*(each[0] for each in found.hidden_states[:-1]), found.last_hidden_state[0]]

    return Subject("whisper", upstream, "transformers", reference)


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def decisions(upstream: Upstream, layers: Sequence[Layers]) -> list[int]:
    """What a head of random weights decides for each recording."""
    torch.manual_seed(3)
    featurizer = LayerFeaturizer(upstream.widths, tuple(range(len(upstream.widths))), False)
    head = LabelHead(featurizer.width, 32, [6])
    with torch.inference_mode():
        frames = [featurizer([layer[None] for layer in each]).double() for each in layers]
        scorers = [head.scorer(each, torch.tensor([each.shape[1]]), None) for each in frames]  # type: ignore[arg-type]
    return [int(scorer.log_probs.argmax()) for scorer in scorers]


def measure(subject: Subject, rows: Sequence[Tensor]) -> tuple[float, dict[str, float], int]:
    """The largest differences from the reference and between batches, and how many decisions differ."""
    alone = [layers_of(subject.upstream, [row])[0] for row in rows]
    compare = subject.reference
    reference = max(farthest(own, compare(row)) for row, own in zip(rows, alone, strict=True)) if compare else 0.0
    labels, between, changed = decisions(subject.upstream, alone), {}, 0
    for name, batches in BATCHES.items():
        found = [(row, own) for batch in batches for row, own in
                 zip(batch, layers_of(subject.upstream, [rows[row] for row in batch]), strict=True)]  # fmt: skip
        between[name] = max(farthest(alone[row], own) for row, own in found)
        decided = decisions(subject.upstream, [own for _, own in found])
        changed += sum(label != labels[row] for label, (row, _) in zip(decided, found, strict=True))
    return reference, between, changed


def main() -> int:
    """Print a line for each."""
    print("| upstream | layers | reference | difference | batches of 8 | dynamic | unlike | labels |")
    print("|---|---|---|---|---|---|---|---|")
    worst = 0
    with tempfile.TemporaryDirectory() as name:
        rows = recordings(Path(name, "corpus"))
        for subject in subjects(Path(name)):
            reference, between, changed = measure(subject, rows)
            figures = " | ".join(f"{value:.1e}" for value in between.values())
            shown = f"{reference:.1e}" if subject.reference else "–"
            count = len(subject.upstream.widths)
            print(f"| {subject.name} | {count} | {subject.against} | {shown} | {figures} | {changed} |", flush=True)
            worst += changed + (max(reference, *between.values()) > LIMIT)
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
