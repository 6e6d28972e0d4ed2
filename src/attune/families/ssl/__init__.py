"""Self-supervised and filterbank encoders with a task head, as in S3PRL: upstream → weighted sum of layers → head."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune import catalog
from attune.contracts import (
    Family,
    FrameTimes,
    HeadTask,
    ImportedCheckpoint,
    Importer,
    Limits,
    Task,
    TaskCodec,
    TaskModel,
    TokenizedTask,
)
from attune.errors import ConfigError
from attune.families.ssl.upstream import UPSTREAMS
from attune.types import SAMPLE_RATE

SLOW_STRIDE = 320  # samples: 20 ms


@dataclass(frozen=True, slots=True)
class SslConfig:
    """Which encoder, and how its layers reach the head."""

    upstream: Annotated[
        str, Field(min_length=1, description="Upstream encoder, see `attune list upstreams`; fbank has no weights.")
    ] = "fbank"
    weights: Annotated[
        str | None,
        Field(description="Run, model folder, transformers folder, or .pt file of fairseq or S3PRL to start from."),
    ] = None
    layers: Annotated[
        int | tuple[int, ...] | None,
        Field(description="Layers to use: 0 is nearest the input, -1 the output (default: weighted sum of all)."),
    ] = None
    normalize: Annotated[bool, Field(description="Layer normalization of each layer before the weighted sum.")] = False
    cache: Annotated[
        str | None,
        Field(min_length=1, description="Folder, or s3:// address, of a frozen upstream's features, for any task."),
    ] = None
    cache_precision: Annotated[Literal["bf16", "fp32"], Field(description="Precision of cached features.")] = "bf16"
    cache_device_gb: Annotated[
        float,
        Field(ge=0, le=10_000, description="GB of the device's memory for cached features, which are then read once."),
    ] = 0.0
    stack: Annotated[
        int | None,
        Field(ge=1, le=1000, description="Neighboring frames to stack into one (default: 3 for 10 ms frames, else 1)."),
    ] = None
    frame_ms: Annotated[
        int | None,
        Field(ge=1, le=1000, description="Milliseconds per frame: drop frames of faster upstreams."),
    ] = None
    gain_db: Annotated[float, Field(ge=-200, le=200, description="Gain of the audio before the upstream, in dB.")] = 0.0

    def __post_init__(self) -> None:
        known = catalog.names(UPSTREAMS)
        if self.upstream not in known and "." not in self.upstream:
            raise ValueError(f"there is no upstream {self.upstream!r}{catalog.suggestion(self.upstream, known)}")
        if self.layers == ():
            raise ValueError("layers: give at least one, or remove the key to use all")


def build(config: SslConfig, task: Task, assets: Path) -> TaskModel:
    """The encoder with the task's head on it, with random weights."""
    from attune.families.ssl.cache import StoredFeatures
    from attune.families.ssl.featurizer import LayerFeaturizer, chosen_layers
    from attune.families.ssl.held import HeldFeatures
    from attune.families.ssl.model import FrameRules, SslModel
    from attune.sources import is_remote

    if not isinstance(task, HeadTask):
        raise ConfigError("The family ssl needs a task with a head, such as transcribe or classify. Set task.name.")
    upstream = catalog.find(UPSTREAMS, config.upstream).build(assets)
    chosen = chosen_layers(config.layers, len(upstream.widths))
    featurizer = LayerFeaturizer(upstream.widths, chosen, config.normalize)
    every = max(1, round(config.frame_ms * SAMPLE_RATE / 1000 / upstream.stride)) if config.frame_ms else 1
    stack = config.stack or (1 if upstream.stride * every >= SLOW_STRIDE else 3)
    stride = upstream.stride * every * stack
    head = task.head(featurizer.width * stack, stride)
    pieces = task.pieces if isinstance(task, TokenizedTask) else ()
    model = SslModel(upstream, featurizer, FrameRules(stack, every, config.gain_db), head)
    if config.cache and not is_remote(config.cache):  # training fetches what is in an object store
        model.cache = StoredFeatures(
            Path(config.cache).expanduser(),
            config.cache_precision,
            model.frozen,
            config.gain_db,
            HeldFeatures(int(config.cache_device_gb * 1e9)),
        )
    return TaskModel(
        model=model,
        codec=TaskCodec(task, pieces),
        scorer=head.scorer_kind,
        limits=Limits(upstream.max_seconds),
        times=FrameTimes(stride / SAMPLE_RATE) if head.scorer_kind == "ctc" else None,
        cache=model.cache,
    )


def read(config: SslConfig, path: Path, assets: Path) -> ImportedCheckpoint:
    """A checkpoint of the upstream alone; the head on it is new."""
    read_upstream = catalog.find(UPSTREAMS, config.upstream).read
    if read_upstream is None:
        raise ConfigError(f"The upstream {config.upstream!r} has no weights. Remove model.weights.")
    tensors = read_upstream(path, assets)
    return ImportedCheckpoint({f"upstream.{name}": tensor for name, tensor in tensors.items()})


FAMILY = Family(
    config=SslConfig,
    build=build,
    # An encoder alone is no model that `attune import` could write: it has no task.
    importer=Importer(lambda path: False, read),
    architecture_settings=("upstream", "layers", "normalize", "stack", "frame_ms", "gain_db"),
    lora_targets=(("q_proj", "v_proj"), ("head.projection",)),  # fbank has no attention
    takes="head",
)
