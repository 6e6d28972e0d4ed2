"""Features of a frozen upstream, kept in files: computed once for each recording, and read by any task.

A folder has one subfolder for each upstream, choice of layers and precision, named by a fingerprint of its weights and
settings. In it are shards, safetensors files of many utterances; a shard is there whole or not at all. Whoever computes
features that are missing writes them, so a run that is stopped goes on with what is there.
"""

# B batch, L layers, F frames, D width
from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from attune.errors import ConfigError, DataError, ModelError
from attune.families.ssl.filterbanks import FilterbankUpstream
from attune.families.ssl.frozen import FrozenUpstream, is_frozen
from attune.families.ssl.held import HeldFeatures
from attune.families.ssl.upstream import Upstream
from attune.files import completed, explain_write_errors
from attune.types import SAMPLE_RATE, Batch, CachedRow, Utterance

SHARD_BYTES = 256 * 2**20
LOOK_AGAIN_SECONDS = 5.0
SAMPLES = "samples"  # the metadata that has every utterance's length
PLAIN = (int, float, str, tuple)
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass
class FeatureShards:
    """The files of one folder, as a process that reads them knows them."""

    folder: Path
    known: dict[str, tuple[Path, int]] = field(default_factory=dict)  # key → file, samples
    opened: dict[Path, Any] = field(default_factory=dict)
    looked_at: float = float("-inf")

    def __call__(self, utterance: Utterance) -> CachedRow | None:
        """The features of an utterance, or the name they would have; None where it has no audio."""
        key = key_of(utterance)
        if key is None:
            return None
        if key not in self.known:
            self._look()
        if key not in self.known:
            return CachedRow(key)
        path, samples = self.known[key]
        return CachedRow(key, samples, self.opened[path].get_tensor(key), path)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "known": {}, "opened": {}, "looked_at": float("-inf")}

    def _look(self) -> None:
        """Read the names in shards that are new; not again at once, as everything is missing in a first epoch."""
        if time.monotonic() - self.looked_at < LOOK_AGAIN_SECONDS:
            return
        self.looked_at = time.monotonic()
        for path in sorted(self.folder.glob("*.safetensors")):
            if path in self.opened:
                continue
            try:
                shard: Any = safe_open(path, "pt")
                samples = json.loads(shard.metadata()[SAMPLES])
            except (OSError, SafetensorError, TypeError, KeyError, ValueError) as error:
                raise DataError(
                    f"{path} is damaged ({error}). Delete it; its features are then computed again."
                ) from error
            self.opened[path] = shard
            self.known |= {key: (path, int(samples[key])) for key in shard.keys()}  # noqa: SIM118


class StoredFeatures:
    """What a model reads and writes; its upstream must be frozen."""

    def __init__(
        self,
        root: Path,
        precision: str,
        frozen: FrozenUpstream,
        gain_db: float = 0.0,
        held: HeldFeatures | None = None,
    ) -> None:
        self.root = root
        self.held = held or HeldFeatures(0)
        is_precise = precision == "fp32" and isinstance(frozen.upstream, FilterbankUpstream)
        self.dtype = torch.float64 if is_precise else DTYPES[precision]  # as it is computed
        self.frozen = frozen
        self.gain_db = gain_db  # of the audio: other features
        self._pending: dict[str, tuple[Tensor, int]] = {}
        self._pending_bytes = 0
        self._named: tuple[tuple[object, ...], Path] | None = None

    def lookup(self) -> Callable[[Utterance], CachedRow | None]:
        """What finds the features of an utterance, in any process."""
        self.flush()
        return FeatureShards(self.folder())

    def note(self, seconds: float) -> str:
        """How large the features of so much audio are, and where they are kept."""
        upstream, featurizer = self.frozen.upstream, self.frozen.featurizer
        layers = 1 if featurizer.is_fixed else len(featurizer.chosen)
        frames = seconds * SAMPLE_RATE / upstream.stride
        size = frames * layers * featurizer.width * self.dtype.itemsize
        with explain_write_errors(self.root, "Choose another model.cache.", ConfigError):
            self.root.mkdir(parents=True, exist_ok=True)
        free, there = shutil.disk_usage(self.root).free, self._bytes_there()
        if size > free + there:
            raise ConfigError(
                f"model.cache: {layers} layers of {seconds / 3600:.1f} h need {size / 1e9:.1f} GB; {self.root} has "
                f"{free / 1e9:.1f} GB free. Choose fewer model.layers, cache_precision=bf16 or another folder."
            )
        return (
            f"model.cache: features of {seconds / 3600:.1f} h, {layers} of the upstream's layers, take "
            f"{size / 1e9:.1f} GB in {self.folder()}; {there / 1e9:.1f} GB are cached, {free / 1e9:.1f} GB are free"
        )

    def features(self, batch: Batch) -> tuple[Iterator[Tensor], Tensor]:
        """The layers (B, F, D) to be kept, from what is there or computed now, and each row's own frames."""
        cached = batch.cached
        if cached and cached.counts is not None:  # they were there before
            if cached.layers is None:
                return iter(self.held.layers(cached.keys)), cached.counts
            layers = cached.layers.unbind(1)
            self.held.add(cached.keys, layers, cached.counts)
            return iter(layers), cached.counts
        if torch.is_grad_enabled() and not is_frozen(self.frozen.upstream):
            raise ConfigError("model.cache needs a frozen upstream. Set adapt.freeze=[upstream].")
        kept, counts = self._computed(batch)
        if cached and is_frozen(self.frozen.upstream):  # not in an evaluation of its own, where nothing is
            self._add(_rows(batch, cached.keys, kept, counts))
        return iter(kept), counts

    def compute(self, batches: Iterable[Batch], path: Path) -> None:
        """Write the features of these batches to a file."""
        if not is_frozen(self.frozen.upstream):
            raise ConfigError("model.cache needs a frozen upstream. Set adapt.freeze=[upstream].")
        rows: dict[str, tuple[Tensor, int]] = {}
        for batch in batches:
            if batch.cached:
                rows |= _rows(batch, batch.cached.keys, *self._computed(batch))
        _write(rows, path)

    def _computed(self, batch: Batch) -> tuple[list[Tensor], Tensor]:
        layers, counts = self.frozen(batch.audio, batch.lengths, self.dtype)
        with torch.no_grad():
            chosen = self.frozen.featurizer.pick(layers)
            found = [self.frozen.featurizer.combine(chosen)] if self.frozen.featurizer.is_fixed else list(chosen)
        return [layer.to(self.dtype) for layer in found], counts

    def folder(self) -> Path:
        """Where features of these weights are."""
        featurizer = self.frozen.featurizer
        version = (*self.frozen.version(), featurizer.is_fixed and featurizer.weights._version)
        if self._named is None or self._named[0] != version:
            self._named = version, self.root / self._fingerprint()
            self.held.clear()
        return self._named[1]

    def flush(self) -> None:
        """Write what has been gathered."""
        if not self._pending:
            return
        _write(self._pending, self.folder() / f"{uuid.uuid4().hex}.safetensors")
        self._pending, self._pending_bytes = {}, 0

    def __deepcopy__(self, memo: dict[int, Any]) -> StoredFeatures:
        return self

    def _add(self, rows: Mapping[str, tuple[Tensor, int]]) -> None:
        # What comes a second time before it was written ends an epoch.
        if any(key in self._pending for key in rows):
            self.flush()
        self._pending |= rows
        self._pending_bytes += sum(tensor.nbytes for tensor, _ in rows.values())
        if self._pending_bytes >= SHARD_BYTES:
            self.flush()

    def _fingerprint(self) -> str:
        featurizer, upstream = self.frozen.featurizer, self.frozen.upstream
        what: list[object] = [*_settings(upstream), featurizer.chosen, str(self.dtype)]
        what += [self.gain_db] if self.gain_db else []
        tensors = dict(cast(nn.Module, upstream).state_dict())
        if featurizer.is_fixed:
            what.append(featurizer.normalizes)
            tensors["featurizer.weights"] = featurizer.weights
        digest = hashlib.sha256(repr(what).encode())
        for name, tensor in sorted(tensors.items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()[:16]

    def _bytes_there(self) -> int:
        return sum(path.stat().st_size for path in self.folder().glob("*.safetensors"))


def _settings(upstream: Upstream) -> Iterator[object]:
    """What an upstream computes by beside its weights: its code, its plain values and the functions that it was given.

    Upstreams without weights differ in nothing else.
    """
    yield _origin(type(upstream))
    for name, value in sorted(vars(upstream).items()):
        if isinstance(value, FunctionType):
            yield name, _origin(value)
        elif isinstance(value, PLAIN) and name != "training" and not name.startswith("_"):
            yield name, value


def _origin(code: type | FunctionType) -> tuple[str, ...]:
    """The name of a class or function; a plug-in's is where its file is, which people edit: so what the file says."""
    name, file = code.__module__, getattr(sys.modules[code.__module__], "__file__", None)
    if file is None or name.partition(".")[0] == "attune":
        return (f"{name}.{code.__qualname__}",)
    return code.__qualname__, hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _rows(
    batch: Batch, keys: tuple[str, ...], layers: Sequence[Tensor], counts: Tensor
) -> dict[str, tuple[Tensor, int]]:
    """Each row's own frames (L, F, D), and its samples."""
    each = zip(keys, torch.stack(list(layers), dim=1).cpu(), counts.tolist(), batch.lengths.tolist(), strict=True)
    return {key: (row[:, :count].contiguous(), samples) for key, row, count, samples in each}


def _write(rows: Mapping[str, tuple[Tensor, int]], path: Path) -> None:
    tensors = {key: tensor for key, (tensor, _) in rows.items()}
    samples = json.dumps({key: count for key, (_, count) in rows.items()})
    with explain_write_errors(path, "Free some space, or remove model.cache.", ModelError), completed(path) as partial:
        try:
            save_file(tensors, partial, {SAMPLES: samples})
        except SafetensorError as error:  # the operating system's error is hidden in it
            raise ModelError(f"Cannot write {path}: {error}. Free some space, or remove model.cache.") from error


def key_of(utterance: Utterance) -> str | None:
    """A name for the audio of an utterance; a file that was changed has another, and one that is not there none."""
    audio, version = utterance.audio, ""
    if audio is None:
        return None
    if isinstance(audio, Path):
        try:
            status = audio.stat()
        except OSError:  # whoever reads it says so
            return None
        audio, version = audio.absolute(), f"{status.st_size} {status.st_mtime_ns}"
    part = (utterance.start, utterance.seconds if utterance.start is not None else None, utterance.channel)
    place = (utterance.first_byte, utterance.byte_count, utterance.row)
    return hashlib.sha256(repr((str(audio), version, part, place)).encode()).hexdigest()[:24]
