"""What a model learns and finds on the CPU and on a CUDA device, or a simulated one, side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
import torch

from attune.audio.masking import draw_masks
from attune.audio.settings import MasksConfig
from attune.batches.load import Reader
from attune.batches.micro_batch import LoadedMicroBatch, MicroBatchPlan, Position
from attune.decoding.fusion import Fusion
from attune.decoding.predict import decode
from attune.decoding.search import Search
from attune.decoding.settings import SearchConfig
from attune.families.lm.model import FusedLm, LmShape, RecurrentLm
from attune.families.lm.transformer import TransformerLm, TransformerLmShape
from attune.families.transducer.front_end import FrontEnd
from attune.loading.language_models import search_of
from attune.site import this_site
from attune.text.arpa import write_arpa
from attune.text.kneser_ney import estimate
from attune.training.loop import StepRules, take_steps
from attune.training.optimizer import make_optimizer
from attune.training.precision import computing_exactly
from attune.training.progress import TrainingProgress
from attune.training.schedule import Schedule
from attune.world import World, choose_device

if IS_CUDA := torch.cuda.is_available():
    DEVICE, ROUNDING = str(choose_device("cuda")), 1e-3  # other sums in other orders
else:
    from simulated_backend import NAME as DEVICE  # torch then knows the device

    ROUNDING = 1e-4

MASKS = MasksConfig(time_part=0.3)
RECURRENT_LM = LmShape(tokens=1, embedding=8, rnn_layers=1, rnn_width=12, dnn_width=8)
TRANSFORMER_LM = TransformerLmShape(tokens=1, width=8, heads=2, layers=1, feed_forward=16)


def require_same(build, rows, searches=lambda built, world: (), more=lambda built, world: None, optimizer="adamw"):
    """The model learns and finds on the device what it does on the CPU; in half precision it does both, too.

    What it learns by then has nothing that CUDA does in any order.
    """

    def run(world):
        built = placed(build, world)
        found = decoded(built, rows, world, Search(), *searches(built, world))
        return found, more(built, world), trained(built, rows, world, optimizer)

    losses = on_both(run)[-1]
    world = World.alone(DEVICE)
    built = placed(build, world)
    decoded(built, rows, world, Search(precision="bf16"))
    with computing_exactly():
        narrow = trained(built, rows, world, optimizer, precision="bf16", strict=True)
    assert narrow[0][0] == pytest.approx(losses[0][0], rel=0.1)


def on_both(run):
    """What runs on the device gives what it gives on the CPU; returns that."""
    expected, found = (run(World.alone(name)) for name in ("cpu", DEVICE))
    require_alike(found, expected)
    return expected


def require_alike(found, expected):
    """The same values, up to rounding."""
    if isinstance(expected, float):
        assert math.isclose(found, expected, rel_tol=ROUNDING, abs_tol=ROUNDING), (found, expected)
    elif isinstance(expected, np.ndarray):
        np.testing.assert_allclose(found, expected, rtol=ROUNDING, atol=ROUNDING / 10)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=ROUNDING / 10)
    elif is_dataclass(expected):
        for each in fields(expected):
            require_alike(getattr(found, each.name), getattr(expected, each.name))
    elif isinstance(expected, Mapping):
        require_alike([*found.items()], [*expected.items()])
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            require_alike(one, other)
    else:
        assert found == expected


def placed(build, world):
    """The model on the world's device, as attune moves it."""
    torch.manual_seed(3)
    built = build()
    for weight in built.module.parameters():  # livelier than fresh weights, whose tokens are nearly equal
        weight.data.mul_(1.5)
    if IS_CUDA:
        take_chance_out(built.module)
    built.module.to(world.device)
    return built


def take_chance_out(model):
    """No dropout and no dither: a CUDA device and the CPU draw other numbers."""
    for module in model.modules():
        if isinstance(module, FrontEnd):
            module.shape = replace(module.shape, dither=0.0)
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name in [name for name in vars(module) if "drop" in name and isinstance(vars(module)[name], float)]:
            setattr(module, name, 0.0)


def trained(built, rows, world, optimizer="adamw", **how):
    """The losses and gradients of a few steps of two micro-batches each."""
    reader = Reader(rows, built.codec.target, reads_audio=built.scorer != "likelihood", pack=built.pack)
    has_masks = built.scorer not in ("waveform", "likelihood", "features")
    micros = []
    for step in (1, 2, 3):
        for slot in (0, 1):
            mine = np.arange(len(rows))[slot::2]
            batch, _ = reader.read(mine)
            masks = draw_masks(range(len(batch.ids)), MASKS) if has_masks else None
            micro = MicroBatchPlan(Position(step=step), slot, mine)
            micros.append(LoadedMicroBatch(micro, replace(batch, masks=masks)))
    rules = StepRules(17, Schedule(1e-4, 3, 0, "constant"), "fp32", 1.0, strict=False, nonfinite_patience=1)
    rules = replace(rules, **how)
    made = make_optimizer(optimizer, built.module, 1e-4, 0.01, (0.9, 0.98))
    steps = take_steps(built.model, made, iter(micros), rules, TrainingProgress(), world, lambda: False)
    return [(step.loss, step.gradient_norm) for step in steps]


def decoded(built, rows, world, *searches, **seen):
    """What each search finds."""
    prompts, _ = Reader(rows, built.codec.prompt, reads_audio=built.scorer != "likelihood").read(range(len(rows)))
    micro = LoadedMicroBatch(MicroBatchPlan(Position(), 0, np.arange(len(rows))), replace(prompts, **seen))
    return [next(decode(built, [micro], search, world)).outputs for search in searches]


def beams(built, rows, world, folder, **settings):
    """Beam searches: alone, with phrases, and fused with language models of every kind."""
    target, pieces = built.codec.target, built.codec.pieces
    texts = [[pieces[token] if token < len(pieces) else "</s>" for token in target(each)] for each in rows]
    path = folder / "tokens.arpa"
    write_arpa(estimate([[piece for piece in text if piece != "</s>"] for text in texts], 2), path)
    beam = SearchConfig(search="beam", beam=2, **settings)
    fused = search_of(replace(beam, lm=str(path), phrases=("b a",)), built, this_site(), world)
    plain = search_of(beam, built, this_site(), world)
    found = [replace(fused, nbest=2), plain]
    device = torch.device("cpu") if built.scorer == "ctc" else world.device
    for net in (
        RecurrentLm(replace(RECURRENT_LM, tokens=len(pieces) + 1)),
        TransformerLm(replace(TRANSFORMER_LM, tokens=len(pieces) + 1)),
    ):
        lm = FusedLm(net.to(device).eval(), 1 if built.scorer == "transducer" else 0)
        found.append(replace(plain, fusion=Fusion(lm, 0.5), lm="lm"))
    return found
