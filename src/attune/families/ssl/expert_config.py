"""The configuration of an S3PRL downstream: its runner, its optimizer, and what `-o` changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from attune import catalog
from attune.errors import ConfigError
from attune.plain_yaml import Plain, read_data

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
FREE = (["optimizer"], ["scheduler"])  # sections whose keys are checked by whoever reads them


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """The `runner` and `optimizer` sections of S3PRL's configuration."""

    total_steps: int = 10_000
    gradient_accumulate_steps: int = 1
    gradient_clipping: float = 1.0
    log_step: int = 100
    eval_step: int = 1000
    save_step: int = 1000
    train_dataloader: str = "train"
    eval_dataloaders: tuple[str, ...] = ("dev",)
    lr: float = 1e-4


def read_config(path: Path) -> dict[str, Plain]:
    """S3PRL's configuration as plain data."""
    if not path.is_file():
        raise ConfigError(f"{path} is missing. Name the downstream's configuration: -c FILE.")
    config = read_data(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(config, dict):
        raise ConfigError(f"{path} has no `key: value` lines.")
    return config


def read_settings(config: Mapping[str, Plain]) -> RunnerSettings:
    """The settings in a configuration."""
    found: dict[str, Any] = {"lr": _section(config, "optimizer").get("lr", 1e-4), **_section(config, "runner")}
    known = RunnerSettings.__dataclass_fields__
    return RunnerSettings(**{name: _typed(name, value) for name, value in found.items() if name in known})


def read_optimizer(config: Mapping[str, Plain]) -> MakeOptimizer:
    """What makes the optimizer of a configuration: one of torch's, by S3PRL's names for them."""
    section = {key: _as_number(value) for key, value in _section(config, "optimizer").items()}
    name = str(section.pop("name", "Adam"))
    own = {"lr": float(section.get("lr", 1e-4)), "weight_decay": 0.0}  # S3PRL's Adam and AdamW take nothing else
    if name == "TorchOptim":
        name, own = str(section.pop("torch_optim_name", "Adam")), section
    elif name not in ("Adam", "AdamW"):
        raise ConfigError(f"optimizer.name: {name} is not there. Use TorchOptim with torch_optim_name, Adam or AdamW.")
    kind = getattr(torch.optim, name, None)
    if not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer):
        raise ConfigError(f"optimizer.torch_optim_name: torch has no optimizer {name!r}.")
    return lambda parameters: _made(cast(Callable[..., torch.optim.Optimizer], kind), parameters, own)


def _made(
    kind: Callable[..., torch.optim.Optimizer], parameters: list[nn.Parameter], settings: Mapping[str, Any]
) -> torch.optim.Optimizer:
    try:
        return kind(parameters, **settings)
    except TypeError as error:
        raise ConfigError(f"optimizer: {error}. Correct the configuration, or set it by -o.") from error


def with_changes(config: Mapping[str, Plain], changes: Mapping[str, Plain]) -> dict[str, Plain]:
    """The configuration with values by dotted keys, which have to be there or be known."""
    changed = copy.deepcopy(dict(config))
    known = {*_keys(config), *(f"runner.{name}" for name in RunnerSettings.__dataclass_fields__)}
    for key, value in changes.items():
        *sections, last = key.split(".")
        if key not in known and sections not in FREE:
            raise ConfigError(f"-o config.{key}: no such key{catalog.suggestion(key, sorted(known))}")
        place: dict[str, Any] = changed
        for name in sections:
            place = place.setdefault(name, {})
        place[last] = value
    return changed


def _keys(section: Mapping[str, Plain], prefix: str = "") -> Iterator[str]:
    for key, value in section.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{key}.")


def _section(config: Mapping[str, Plain], key: str) -> dict[str, Plain]:
    section = config.get(key)
    return section if isinstance(section, dict) else {}


def _as_number(value: Any) -> Any:
    """A number that YAML takes for text, such as 1e-4, as one."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _typed(name: str, value: Any) -> Any:
    if name == "train_dataloader":
        return str(value)
    if name == "eval_dataloaders":
        return tuple(map(str, value if isinstance(value, list | tuple) else [value]))
    try:
        return float(value) if name in ("lr", "gradient_clipping") else int(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"runner.{name}: expected a number, found {value!r}.") from error
