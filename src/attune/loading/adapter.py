"""LoRA additions as peft keeps them: adapter_config.json and adapter_model.safetensors, written and read.

The names in such a file are those of the model it was trained on. Whisper's weights have transformers' names, so its
adapters go both ways; of other families, attune reads what attune wrote.
"""

import json
import math
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from attune.errors import ModelError, SourceError
from attune.files import explain_write_errors, sync, write_text
from attune.loading.pretrained import FORMAT, open_pretrained, read_weights
from attune.run import Run
from attune.site import Site
from attune.sources import locate, without_secrets
from attune.tensor_files import read_safetensors
from attune.training.adapt import BASE, DOWN, UP
from attune.training.settings import AdaptConfig

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX, LORA_A, LORA_B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
UNSET: tuple[object, ...] = (None, False, [], {})
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# Settings that, unless they are unset, need more than two factors of one rank for each layer.
UNSUPPORTED = ("use_dora", "fan_in_fan_out", "bias", "modules_to_save", "alpha_pattern", "rank_pattern")


@dataclass(frozen=True, slots=True)
class Adapter:
    """Additions to the weights of layers: two factors for each, and how much of their product is added."""

    folder: Path
    factors: Mapping[str, tuple[Tensor, Tensor]]  # by layer: (rank, in), (out, rank)
    scale: float

    def apply(self, model: nn.Module) -> None:
        """Add them to a model's weights."""
        modules = dict(model.named_modules())
        for name, (down, up) in self.factors.items():
            layer = modules.get(name)
            if not isinstance(layer, nn.Linear) or layer.weight.shape != (up.shape[0], down.shape[1]):
                raise ModelError(
                    f"{self.folder} is for another model: it adapts {name} ({up.shape[0]} × {down.shape[1]}), which "
                    "this base does not have. Give the base it was trained on: --base MODEL."
                )
            with torch.no_grad():
                added = self.scale * (up.double() @ down.double())
                layer.weight.copy_((layer.weight.double() + added).to(layer.weight.dtype))


def is_adapter(path: Path) -> bool:
    """Whether a folder holds an adapter in peft's layout."""
    return (path / CONFIG).is_file()


def base_of(folder: Path, site: Site) -> Path:
    """The model that an adapter is for: a folder on this machine, or a name of the Hub."""
    named = _settings(folder).get("base_model_name_or_path")
    if isinstance(named, str) and named:
        beside = [path for path in (Path(named).expanduser(), folder / named) if path.exists()]
        if beside:
            return beside[0]
        if HUB_NAME.fullmatch(named):
            return locate(f"hf://{named}", site.cache)
        if named.startswith(("attune://", "hf://")):
            return locate(named, site.cache)
    raise SourceError(f"Cannot find the base model of {folder} (adapter_config.json: {named!r}). Add --base MODEL.")


def read_adapter(folder: Path) -> Adapter:
    """The additions in a folder; other methods than plain LoRA are refused."""
    settings = _settings(folder)
    kind = settings.get("peft_type")
    other = [f"{key}={settings[key]!r:.40}" for key in UNSUPPORTED if settings.get(key) not in (*UNSET, "none")]
    if kind != "LORA" or other:
        found = ", ".join(other) or f"peft_type={kind!r:.40}"
        raise ModelError(f"{folder} is not plain LoRA ({found}). Merge it with peft, then import that.")
    rank, alpha = (_number(settings.get(key)) for key in ("r", "lora_alpha"))
    if not (rank > 0 and math.isfinite(alpha)):
        raise ModelError(f"{folder / CONFIG}: r and lora_alpha must be numbers above 0. Download the adapter again.")
    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"{folder} has no {WEIGHTS}. Save the adapter with peft's default, safe_serialization=True.")
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    return Adapter(folder, _factors(folder / WEIGHTS), scale)


def with_base(folder: Path, base: str, copy: Path) -> Path:
    """The same adapter for a base of one's choice, in another folder."""
    copy.mkdir()
    write_text(copy / CONFIG, json.dumps({**_settings(folder), "base_model_name_or_path": base}))
    if (folder / WEIGHTS).is_file():
        (copy / WEIGHTS).symlink_to((folder / WEIGHTS).absolute())
    return copy


def export_adapter(source: str, to: Path, site: Site) -> int:
    """Write the LoRA additions of a run's best checkpoint alone; returns how many layers have some."""
    path = locate(source, site.cache)
    if to.exists():
        raise ModelError(f"{to} already exists. Choose another folder.")
    pretrained = open_pretrained(path)
    tensors = read_weights(pretrained.weights)
    layers = [name.removesuffix(DOWN) for name in tensors if name.endswith(DOWN)]
    if not layers:
        raise ModelError(
            f"{source} has no LoRA weights: it was trained without adapt.method=lora, or they are merged. "
            "Name a run with adapt.method=lora, or export the whole model without --adapter."
        )
    if new := Run(path).start().new_tensors:
        raise ModelError(
            f"{source} trained more than LoRA weights ({', '.join(new[:3])} …), which an adapter does not have. "
            "Export the whole model without --adapter."
        )
    weights = pretrained.recipe.model.config.weights
    written = {f"{PREFIX}{name}{LORA_A}": tensors[name + DOWN].contiguous() for name in layers}
    written |= {f"{PREFIX}{name}{LORA_B}": tensors[name + UP].contiguous() for name in layers}
    with explain_write_errors(to, "Choose another place.", ModelError):
        _write(to, written, _config(pretrained.adapt, _targets(layers, tensors), weights))
    return len(layers)


def _write(to: Path, tensors: dict[str, Tensor], config: Mapping[str, object]) -> None:
    partial = to.parent / f".{to.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        partial.mkdir(parents=True)
        save_file(tensors, partial / WEIGHTS, FORMAT)
        sync(partial / WEIGHTS)
        write_text(partial / CONFIG, json.dumps(config, indent=2) + "\n")
        partial.rename(to)
        sync(to.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _config(settings: AdaptConfig, targets: list[str], weights: str | None) -> dict[str, object]:
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": without_secrets(weights or "").removeprefix("hf://") or None,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": targets,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _targets(layers: list[str], tensors: Mapping[str, Tensor]) -> list[str]:
    """The last words of the layers where these name no others, or else their whole names."""
    words = sorted({name.rpartition(".")[2] for name in layers})
    modules = {name.replace(BASE, ".").removesuffix(".weight") for name in tensors if name.endswith(".weight")}
    others = {name for name in modules if name.rpartition(".")[2] in words and ".lora_" not in name} - set(layers)
    return layers if others else words


def _settings(folder: Path) -> dict[str, Any]:
    try:
        settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {error}. Download the adapter again.") from error
    if not isinstance(settings, dict):
        raise ModelError(f"{folder / CONFIG} has no settings in it. Download the adapter again.")
    return settings


def _factors(path: Path) -> dict[str, tuple[Tensor, Tensor]]:
    tensors = {name.replace(".default.", "."): tensor for name, tensor in read_safetensors(path).items()}
    strange = [name for name in tensors if not (name.startswith(PREFIX) and name.endswith((LORA_A, LORA_B)))]
    names = [name.removesuffix(LORA_A) for name in tensors if name.endswith(LORA_A)]
    lonely = [name for name in names if name + LORA_B not in tensors]
    flat = [name for name, tensor in tensors.items() if tensor.ndim != 2 or not tensor.is_floating_point()]
    if strange or lonely or flat or len(tensors) != 2 * len(names):
        example = next(iter([*strange, *lonely, *flat]), "lora_A without lora_B, or the other way round")
        raise ModelError(f"{path} has more than LoRA of linear layers: {example!r:.100}. Merge it with peft first.")
    pairs = {name.removeprefix(PREFIX): (tensors[name + LORA_A], tensors[name + LORA_B]) for name in names}
    for name, (down, up) in pairs.items():
        if up.shape[1] != down.shape[0]:
            raise ModelError(f"{path}: lora_A and lora_B of {name} do not fit together. Download the adapter again.")
    return pairs


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
