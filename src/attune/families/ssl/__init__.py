"""Self-supervised and filterbank encoders with a task head, as in S3PRL: upstream → stacked frames → head."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attune.contracts import Family, HeadTask, Task, TaskCodec, TaskModel, TokenizedTask
from attune.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SslConfig:
    """Which encoder, and how its frames reach the head."""

    upstream: Annotated[Literal["fbank"], Field(description="Upstream encoder; fbank has no weights.")] = "fbank"
    weights: Annotated[str | None, Field(description="Model folder or run to start from.")] = None
    stack: Annotated[int, Field(ge=1, le=1000, description="Neighboring frames to stack into one.")] = 3


def build(config: SslConfig, task: Task, assets: Path) -> TaskModel:
    """The encoder with the task's head on it, with fresh weights."""
    from attune.families.ssl.model import SslModel
    from attune.families.ssl.upstreams import UPSTREAMS

    if not isinstance(task, HeadTask):
        raise ConfigError("This family needs a task with a head, such as transcribe or classify. Set task.name.")
    upstream = UPSTREAMS[config.upstream]()
    head = task.head(upstream.width * config.stack)
    pieces = task.pieces if isinstance(task, TokenizedTask) else ()
    return TaskModel(SslModel(upstream, config.stack, head), TaskCodec(task, pieces), head.scorer_kind)


FAMILY = Family(
    config=SslConfig,
    build=build,
    architecture_settings=("upstream", "stack"),
    lora_targets=(("q_proj", "v_proj"), ("head.projection",)),  # fbank has no attention
)
