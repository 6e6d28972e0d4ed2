"""A model that ranks share: built without its memory, cut into slices, and decoded with by all ranks together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attune.decoding.search import Search
from attune.loading.pretrained import LoadedModel, build_model, load_weights
from attune.recipe import Recipe
from attune.run import Run
from attune.training.adapt import merge_lora
from attune.training.deferred import Deferred
from attune.training.depth import layer_factors
from attune.training.optimizer import OptimizerLike, make_optimizer
from attune.training.sharding import (
    OwnPart,
    decoding_in_shards,
    fill_slices,
    has_slices,
    share_weights,
    shares_of,
    whole_weights,
)
from attune.world import World


def deferral(recipe: Recipe, world: World) -> Deferred | None:
    """What to build a model under of which a rank keeps slices. LoRA's layers go where those that they adapt are."""
    return Deferred() if _shares(recipe, world) and recipe.adapt.method != "lora" else None


def _shares(recipe: Recipe, world: World) -> bool:
    return recipe.train.shares_weights and (world.size > 1 or recipe.train.offload)


def share_model(loaded: LoadedModel, recipe: Recipe, world: World, deferred: Deferred | None) -> None:
    """Have the model on this rank's device: all of it, or this rank's slices."""
    model, settings = loaded.task_model.module, recipe.train
    if not _shares(recipe, world):
        model.to(world.device)
        return
    tensors = deferred.tensors(model) if deferred else {}
    if deferred is None and not settings.offload:
        model.to(world.device)
    share_weights(model, world, regathers=settings.shard == "full", offloads=settings.offload)
    fill_slices(model, tensors, world.device, settings.offload)


def open_optimizer(recipe: Recipe, loaded: LoadedModel, fresh: Sequence[str], world: World) -> OptimizerLike:
    """The recipe's optimizer; where ranks share, each has its own part of it."""
    settings, model = recipe.optimizer, loaded.task_model.module
    factors = layer_factors(model, settings.layer_decay, fresh) if settings.layer_decay else None
    shares = shares_of(model, world.size) if recipe.train.shard == "optimizer" and world.size > 1 else None
    own = shares[world.rank] if shares else None
    made = make_optimizer(settings.name, model, settings.lr, settings.weight_decay, settings.betas, factors, own)
    if shares is None:
        return made
    parameters = dict(model.named_parameters())
    return OwnPart(made, [[parameters[name] for name in share] for share in shares], world)


def decodes_in_shards(loaded: LoadedModel, recipe: Recipe, search: Search) -> bool:
    """Whether ranks decode together with the slices they have; adapters and narrow numbers need a whole copy."""
    is_plain = recipe.adapt.method != "lora" and search.precision == "fp32"
    return has_slices(loaded.task_model.module) and is_plain


def decoding_world(loaded: LoadedModel, recipe: Recipe, search: Search, world: World) -> World:
    """Who decodes what: each rank its part; ranks that need one another for every layer, all of it in step."""
    return World(0, 1, world.device) if decodes_in_shards(loaded, recipe, search) else world


@contextmanager
def usable(loaded: LoadedModel, recipe: Recipe, search: Search, run: Run, world: World) -> Iterator[LoadedModel]:
    """The model as ranks of `decoding_world` can decode with it."""
    if decodes_in_shards(loaded, recipe, search):
        with decoding_in_shards(loaded.task_model.module):
            yield loaded
    elif has_slices(loaded.task_model.module):
        weights = merge_lora(whole_weights(loaded.task_model.module), recipe.adapt)
        alone = build_model(recipe, run.task, run.assets)
        load_weights(alone.task_model.module, weights, run.checkpoints)
        alone.task_model.module.to(world.device)
        yield alone
    else:
        yield loaded
