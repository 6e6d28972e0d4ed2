"""Choose which weights of a pretrained model learn: all, some, or low-rank additions to some (LoRA).

Works on any `nn.Module`, in place, before the optimizer is made. What the pretrained weights did not give is always
trained, unless `freeze` names it. What is exported has the names of the model before it was adapted.
"""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from attune.errors import ConfigError
from attune.seeds import derive
from attune.training.depth import layers_above
from attune.training.packages import import_optional, quiet
from attune.training.settings import AdaptConfig

MISSING = 'adapt.method=lora needs peft, which is not installed. Run: pip install "attune-speech[lora]"'

# How peft names the tensors of a layer: its own, and the two factors of what is added to its weight.
BASE, DOWN, UP = ".base_layer.", ".lora_A.default.weight", ".lora_B.default.weight"


@dataclass(frozen=True, slots=True)
class Adapted:
    """What came of it, for the user to see: numbers of parameters, and the layers with additions."""

    trainable: int
    total: int
    lora_layers: tuple[str, ...]


def adapt(
    model: nn.Module,
    settings: AdaptConfig,
    seed: int,
    fresh: Collection[str] = (),
    default_targets: Sequence[Sequence[str]] = (("q_proj", "v_proj"),),
) -> Adapted:
    """Freeze and extend the model as the settings say; `fresh` names tensors that did not come pretrained.

    Without `settings.targets`, LoRA adapts the first group of `default_targets` that the model has.
    """
    if settings.last_layers is not None:
        _freeze_below(model, settings.last_layers, fresh)
    _freeze(model, settings.freeze)
    lora_layers = _add_lora(model, settings, seed, fresh, default_targets) if settings.method == "lora" else ()
    _keep_statistics(model)
    parameters = list(model.parameters())
    trainable = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    if not trainable:
        raise ConfigError("adapt: no parameter is left to train. Freeze less, or raise adapt.last_layers.")
    return Adapted(trainable, sum(parameter.numel() for parameter in parameters), lora_layers)


def merge_lora(tensors: Mapping[str, Tensor], settings: AdaptConfig) -> dict[str, Tensor]:
    """An adapted model's state dict as the plain model's, with the additions added in; without LoRA, as it is.

    Needs the tensors alone, so that a checkpoint can be used where peft is not installed.
    """
    merged = {}
    for name, tensor in tensors.items():
        layer, _, kind = name.rpartition(BASE)
        if layer + DOWN not in tensors:
            merged[name] = tensor
        elif kind == "weight":
            added = tensors[layer + UP].double() @ tensors[layer + DOWN].double()
            merged[f"{layer}.weight"] = (tensor.double() + settings.alpha / settings.rank * added).to(tensor.dtype)
        else:
            merged[f"{layer}.{kind}"] = tensor
    return {name: tensor for name, tensor in merged.items() if not name.endswith((DOWN, UP))}


def _freeze_below(model: nn.Module, last_layers: int, fresh: Collection[str]) -> None:
    above = layers_above(model)
    deepest = max(above.values(), default=0)
    if not deepest:
        raise ConfigError("adapt.last_layers: this model has no stack of layers. Use adapt.freeze instead.")
    if last_layers >= deepest:
        raise ConfigError(f"adapt.last_layers={last_layers} would train the whole model. Choose fewer, or remove it.")
    for name, parameter in model.named_parameters():
        if above[name] > last_layers and name not in fresh:
            parameter.requires_grad_(False)


def _freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    # Weights that two layers share are listed under both names: freezing either freezes them.
    parameters = dict(model.named_parameters(remove_duplicate=False))
    # A part may have no weights, as an upstream that is a filterbank: then it is frozen already.
    modules = (name for name, _ in model.named_modules())
    parts = dict.fromkeys(part for name in (*parameters, *modules) for part in _parts(name))
    frozen = set(_named("adapt.freeze: this model has no part", patterns, parts))
    for name, parameter in parameters.items():
        if frozen.intersection(_parts(name)):
            parameter.requires_grad_(False)


def _parts(name: str) -> Iterator[str]:
    """`a.b.weight` is a part of the model, and so are `a.b` and `a` that it lies in."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _add_lora(
    model: nn.Module,
    settings: AdaptConfig,
    seed: int,
    fresh: Collection[str],
    default_targets: Sequence[Sequence[str]],
) -> tuple[str, ...]:
    """Freeze everything but fresh tensors, and give the chosen layers, of those not frozen before, their additions."""
    peft = import_optional("peft", MISSING)
    still = [each for name, each in model.named_parameters() if name in fresh and each.requires_grad]
    layers = _adaptable(model)
    targets = settings.targets or _first_present(default_targets, layers)
    named = _named("adapt.targets: no layer that LoRA can adapt is named", targets, layers)
    chosen = tuple(name for name in named if layers[name].weight.requires_grad and f"{name}.weight" not in fresh)
    if not chosen:
        raise ConfigError(
            f"adapt.targets: every layer named {', '.join(targets)} is frozen, or new (LoRA adapts pretrained layers). "
            f"Freeze less, name others (known: {', '.join(_last_words(layers))}), or set adapt.method=full."
        )
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules="|".join(map(re.escape, chosen)),
        task_type=None,  # given a type, peft expects inputs by the names that text models use
    )
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(derive(seed, "lora"))
        peft.inject_adapter_in_model(config, model)
    model.train(model.training)  # the new dropouts too
    for parameter in still:
        parameter.requires_grad_(True)
    return chosen


def _first_present(groups: Sequence[Sequence[str]], layers: Collection[str]) -> Sequence[str]:
    """The first group whose every pattern fits a layer; of none, the first, which is then refused by name."""
    fitting = (group for group in groups if all(any(_fits(name, each) for name in layers) for each in group))
    return next(fitting, groups[0])


def _adaptable(model: nn.Module) -> dict[str, nn.Linear]:
    """Linear layers that are called as such, and whose weight is theirs alone, so that it can be merged."""
    owners = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and not isinstance(module, NonDynamicallyQuantizableLinear)  # torch's attention reads its weight directly
        and owners[id(module.weight)] == 1
    }


def _named(complaint: str, patterns: Sequence[str], known: Collection[str]) -> list[str]:
    """The known names that a pattern fits, whole or from a dot on; a pattern that fits none is a ConfigError."""
    unknown = [pattern for pattern in patterns if not any(_fits(name, pattern) for name in known)]
    if unknown:
        raise ConfigError("\n".join(f"{complaint} {each!r}{_hint(each, known)}" for each in unknown))
    return [name for name in known if any(_fits(name, pattern) for pattern in patterns)]


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")


def _hint(pattern: str, known: Collection[str]) -> str:
    """The nearest name, or every last part of one, since whole names are many."""
    words = _last_words(known)
    near = difflib.get_close_matches(pattern, [*words, *known], n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f" (known: {', '.join(words)})"


def _last_words(names: Collection[str]) -> list[str]:
    """The last part of each name that is no number."""
    return sorted({word for name in names if not (word := name.rpartition(".")[2]).isdigit()})


def _keep_statistics(model: nn.Module) -> None:
    """Let norms whose weights are frozen also keep and use the statistics they came with."""
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        has_statistics = any(name == "running_mean" for name, _ in module.named_buffers(recurse=False))
        if has_statistics and own and not any(parameter.requires_grad for parameter in own):
            module.register_forward_pre_hook(_stop_training)


def _stop_training(module: nn.Module, _: object) -> None:
    module.training = False
