"""How deep in a model each weight lies, counted in layers from the top.

A stack is an `nn.ModuleList` called `layers`, `blocks` or `encoder`; an encoder-decoder has two. What comes before a
stack is what its parents registered before it, which for every speech model is also what runs before it.
"""

from collections.abc import Collection

from torch import nn

from attune.errors import ConfigError

STACK_NAMES = ("layers", "blocks", "encoder")


def layers_above(model: nn.Module) -> dict[str, int]:
    """By parameter name: 0 after a stack, 1 in its last layer, and so on to one more than its layers before it."""
    names = [name for name, _ in model.named_parameters()]
    above = dict.fromkeys(names, 0)
    stacks = _stacks(model)
    for stack, depth in stacks.items():
        inside = [name for name in names if name.startswith(f"{stack}.")]
        before = names[: names.index(inside[0])] if inside else []
        scope = _input_scope(stack, list(stacks))
        above |= {name: depth + 1 for name in before if name.startswith(scope)}
        above |= {name: depth - int(name.removeprefix(f"{stack}.").partition(".")[0]) for name in inside}
    return above


def layer_factors(model: nn.Module, decay: float, fresh: Collection[str] = ()) -> dict[str, float]:
    """By parameter name: the part of the learning rate it gets, `decay` once for every layer above it.

    `fresh` names the parameters that no pretrained weights were given for; they learn at the full rate.
    """
    if not _stacks(model):
        raise ConfigError("optimizer.layer_decay: this model has no stack of layers. Remove it.")
    return {name: 1.0 if name in fresh else decay**above for name, above in layers_above(model).items()}


def _stacks(model: nn.Module) -> dict[str, int]:
    """How many layers each stack has, by name; a stack inside another's module is a part of it, not one to count."""
    found = {
        name: len(module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in STACK_NAMES and len(module)
    }
    homes = {_parent(name) for name in found}
    return {
        name: layers
        for name, layers in found.items()
        if not any(name.startswith(home) for home in homes - {_parent(name)})
    }


def _parent(stack: str) -> str:
    """The prefix of all that lies in the module that holds a stack."""
    return stack[: stack.rfind(".") + 1]


def _input_scope(stack: str, stacks: list[str]) -> str:
    """The prefix of the largest part of the model in which no other stack comes first."""
    earlier = stacks[: stacks.index(stack)]
    scope = _parent(stack)
    while scope and not any(each.startswith(_parent(scope[:-1])) for each in earlier):
        scope = _parent(scope[:-1])
    return scope
