"""What ranks share out among them, as the recipe's train.shard has it; with one rank there is nothing to share."""

from collections.abc import Sequence

from attune.recipe import Recipe
from attune.run import Run
from attune.stages.pretrained import LoadedModel, build_model, load_weights
from attune.training.adapt import merge_lora
from attune.training.depth import layer_factors
from attune.training.optimizer import OptimizerLike, make_optimizer
from attune.training.sharding import OwnPart, has_slices, share_weights, shares_of, whole_weights
from attune.world import World


def open_optimizer(recipe: Recipe, assembled: LoadedModel, fresh: Sequence[str], world: World) -> OptimizerLike:
    """The recipe's optimizer; where ranks share, each has its own part of it."""
    settings, model = recipe.optimizer, assembled.task_model.module
    shard = recipe.train.shard if world.size > 1 else "none"
    factors = layer_factors(model, settings.layer_decay, fresh) if settings.layer_decay else None
    if shard == "full":
        share_weights(model, world)
    shares = shares_of(model, world.size) if shard == "optimizer" else None
    own = shares[world.rank] if shares else None
    made = make_optimizer(settings.name, model, settings.lr, settings.weight_decay, settings.betas, factors, own)
    if shares is None:
        return made
    parameters = dict(model.named_parameters())
    return OwnPart(made, [[parameters[name] for name in share] for share in shares], world)


def usable_alone(assembled: LoadedModel, recipe: Recipe, run: Run, world: World) -> LoadedModel:
    """The model with all its weights on every rank: ranks decode as many batches as they have, without the others."""
    if not has_slices(assembled.task_model.module):
        return assembled
    weights = merge_lora(whole_weights(assembled.task_model.module), recipe.adapt)
    alone = build_model(recipe, run.task, run.assets)
    load_weights(alone.task_model.module, weights, run.checkpoints)
    alone.task_model.module.to(world.device)
    return alone
