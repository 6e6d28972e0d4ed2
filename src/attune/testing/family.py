"""Does a family keep what every other part of attune relies on? Checked on real utterances, on the CPU.

An utterance's result depends on that utterance alone; losses are sums; the state dict is the whole model; whatever is
trainable is trained; what the recipe masks is not seen; what is searched is what was trained; and int8 is near fp32.
"""

# B batch, F frames, U tokens, V vocabulary
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.masking import draw_masks
from attune.audio.settings import MasksConfig
from attune.batches.collate import collate_targets
from attune.batches.load import Reader
from attune.contracts import Family, ModelSection, SpeechModel, Task
from attune.decoding.predict import prepare_for_decoding
from attune.decoding.search import Search
from attune.scorers import (
    WITHOUT_MASKS,
    ActivityScorer,
    CtcScorer,
    EmbeddingScorer,
    FeatureScorer,
    LabelScorer,
    LikelihoodScorer,
    Scorer,
    ScorerKind,
    TokenScorer,
    TransducerScorer,
    WaveformScorer,
    kind_of,
)
from attune.testing.outputs import outputs_of
from attune.testing.problems import differences, require_none, without_gradient
from attune.types import SAMPLE_RATE, Batch, Targets, TokenTargets, Utterance

SEED = 17  # of the random weights that are checked
INT8_NOISE = 0.2  # of what outputs differ among themselves


def check_family(
    family: Family[ModelSection],
    config: ModelSection,
    task: Task,
    utterances: Sequence[Utterance],
    assets: Path = Path(),
    tolerance: float = 1e-4,
) -> None:
    """Raise CheckFailed with every promise that the model breaks on these utterances: a few, of different lengths.

    `assets` is the folder that the family builds from, where it needs one.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)  # the answer is the same whatever ran before
        built = family.build(config, task, assets)
        batches = _batches(Reader(utterances, built.codec.target, reads_audio=task.needs_audio), len(utterances))
        prompts = {each.id: built.codec.prompt(each) for each in utterances}
        subject = _Subject(built.model.eval(), built.scorer, batches, prompts, tolerance)
        checks = (_kind, _neighbours, _order, _padding, _additivity, _frames, _teacher_forcing, _prompts)
        problems = [problem for check in checks for problem in check(subject)]
        problems += _masks(subject) if task.needs_audio else ()
        problems += _int8(subject, prepare_for_decoding(built, Search(precision="int8")).model)
        problems += _save_and_load(subject, lambda: family.build(config, task, assets).model.eval())
        problems += _gradients(subject)
    require_none("The family", problems)


@dataclass(frozen=True, slots=True)
class _Batches:
    alone: list[Batch]
    together: Batch
    backwards: Batch


@dataclass(frozen=True)
class _Subject:
    model: SpeechModel
    kind: ScorerKind
    batches: _Batches
    prompts: Mapping[str, tuple[int, ...]]  # by id, where decoding begins with one
    tolerance: float

    @property
    def module(self) -> nn.Module:
        """The model as torch sees it."""
        return cast(nn.Module, self.model)

    @cached_property
    def together_outputs(self) -> dict[str, Tensor]:
        return self.outputs(self.batches.together)

    @cached_property
    def alone_outputs(self) -> dict[str, Tensor]:
        return {name: output for batch in self.batches.alone for name, output in self.outputs(batch).items()}

    @cached_property
    def together_loss(self) -> tuple[Tensor, Tensor]:
        return self.loss(self.batches.together)

    @cached_property
    def alone_losses(self) -> list[tuple[Tensor, Tensor]]:
        return [self.loss(batch) for batch in self.batches.alone]

    def compare(self, what: str, expected: Tensor, actual: Tensor) -> Iterator[str]:
        """A sentence when the two are not the same within the tolerance."""
        return differences(what, expected, actual, self.tolerance)

    def outputs(self, batch: Batch) -> dict[str, Tensor]:
        """What the model outputs for each utterance, by id."""
        with torch.no_grad():
            return dict(zip(batch.ids, outputs_of(self.scorer(batch)), strict=True))

    def scorer(self, batch: Batch) -> Scorer:
        """What a search would be given, with the prompts in place of the targets."""
        return self.model.scorer(self.prompted(batch))

    def prompted(self, batch: Batch) -> Batch:
        """The batch as it is decoded."""
        return replace(batch, targets=collate_targets([self.prompts[name] for name in batch.ids]))

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The sum and the count."""
        with torch.no_grad():
            loss = self.model.loss(batch)
        return loss.total, loss.count


def _batches(reader: Reader, count: int) -> _Batches:
    def read(rows: Sequence[int]) -> Batch:
        batch, _ = reader.read(torch.tensor(rows).numpy())
        if batch is None:
            raise ValueError("check_family needs utterances to check with; it was given none.")
        return batch

    rows = range(count)
    return _Batches([read([row]) for row in rows], read(rows), read(rows[::-1]))


def _kind(subject: _Subject) -> Iterator[str]:
    kind = kind_of(subject.scorer(subject.batches.together))
    if kind != subject.kind:
        yield f"kind: the model is declared as {subject.kind!r}, and its scorer is {kind!r}"


def _neighbours(subject: _Subject) -> Iterator[str]:
    for name, alone in subject.alone_outputs.items():
        together = subject.together_outputs[name]
        yield from subject.compare(f"neighbours: the output of {name!r} in a batch", alone, together)


def _order(subject: _Subject) -> Iterator[str]:
    backwards = subject.batches.backwards
    reversed_outputs = subject.outputs(backwards)
    for name, output in subject.together_outputs.items():
        yield from subject.compare(f"order: the output of {name!r} in a reversed batch", output, reversed_outputs[name])
    yield from subject.compare(
        "order: the loss of a reversed batch", subject.together_loss[0], subject.loss(backwards)[0]
    )


def _padding(subject: _Subject) -> Iterator[str]:
    for batch, (loss, _) in zip(subject.batches.alone, subject.alone_losses, strict=True):
        padded = replace(batch, audio=F.pad(batch.audio, (0, SAMPLE_RATE)), targets=_wider(batch.targets))
        (name,) = batch.ids
        expected, actual = subject.alone_outputs[name], subject.outputs(padded)[name]
        yield from subject.compare(f"padding: the output of {name!r} with a second of it", expected, actual)
        padded_loss, _ = subject.loss(padded)
        yield from subject.compare(f"padding: the loss of {name!r} with a second of it", loss, padded_loss)


def _additivity(subject: _Subject) -> Iterator[str]:
    totals, counts = zip(*subject.alone_losses, strict=True)
    total, count = subject.together_loss
    yield from subject.compare("sums: the loss of a batch against its utterances' added up", sum(totals), total)
    yield from subject.compare("sums: the count of a batch against its utterances' added up", sum(counts), count)


def _masks(subject: _Subject) -> Iterator[str]:
    if subject.kind in WITHOUT_MASKS:
        return
    together = subject.batches.together
    seeds = {name: seed for seed, name in enumerate(together.ids)}
    alone = torch.stack([subject.loss(_masked(batch, seeds))[0] for batch in subject.batches.alone])
    total = subject.loss(_masked(together, seeds))[0]
    if torch.equal(total, subject.together_loss[0]):
        yield "masks: the loss is the same with and without; hide what `batch.masks` says by `mask_features`"
    yield from subject.compare("masks: the loss of a batch with masks against its utterances'", alone.sum(), total)


def _masked(batch: Batch, seeds: Mapping[str, int]) -> Batch:
    return replace(batch, masks=draw_masks((seeds[name] for name in batch.ids), MasksConfig(time_part=0.5)))


def _frames(subject: _Subject) -> Iterator[str]:
    batch = subject.batches.together
    scorer = subject.scorer(batch)
    if isinstance(scorer, CtcScorer | TransducerScorer | ActivityScorer):
        expected = torch.tensor([subject.model.frames(samples) for samples in batch.lengths.tolist()])
        yield from subject.compare(
            "frames: what model.frames() says against the scorer's lengths", expected, scorer.lengths
        )


def _teacher_forcing(subject: _Subject) -> Iterator[str]:
    batch = subject.batches.together
    trained, _ = subject.together_loss
    with torch.no_grad():
        scorer = subject.scorer(batch)
        if isinstance(scorer, TransducerScorer):
            if scorer.durations:
                return  # the loss of such models may be under-normalized on purpose, and what is searched is not
            searched = _lattice_loss(scorer, batch)
        elif isinstance(scorer, CtcScorer | LabelScorer | LikelihoodScorer):
            searched = _loss_of(scorer, batch)
        elif isinstance(scorer, EmbeddingScorer | FeatureScorer | ActivityScorer | WaveformScorer):
            return  # how its loss comes from what is read off, only the task knows
        else:
            # Which tokens of a prompt are learned, only the family knows; what follows it is both learned and searched.
            trained = trained - subject.loss(subject.prompted(batch))[0]
            searched = _loss_after_prompts(scorer, batch)
    yield from subject.compare("search: the loss computed from the scorer against the model's own", trained, searched)


def _prompts(subject: _Subject) -> Iterator[str]:
    if subject.kind != "tokens":
        return
    batch = subject.batches.together
    scorer = subject.scorer(batch)
    limits: Sequence[float] = [math.inf] * len(batch.ids)
    if subject.kind == "tokens":
        limits = cast(TokenScorer, scorer).limits
    rows = zip(batch.ids, batch.tokens.ids.tolist(), batch.tokens.lengths.tolist(), limits, strict=True)
    for name, target, length, limit in rows:
        prompt = subject.prompts[name]
        if tuple(target[: len(prompt)]) != prompt:
            yield f"prompts: the target of {name!r} does not begin with what decoding begins with"
        if length - len(prompt) - 1 > limit:
            yield f"prompts: {name!r} may only emit {limit} tokens, and its target has {length - len(prompt) - 1}"


def _int8(subject: _Subject, model: SpeechModel) -> Iterator[str]:
    quantized = replace(subject, model=model)
    for name, exact in subject.together_outputs.items():
        found = quantized.together_outputs[name]
        signal = exact - exact.mean() if exact.numel() > 1 else exact
        noise, most = float((found - exact).norm()), INT8_NOISE * float(signal.norm()) + subject.tolerance
        if not noise <= most:
            yield f"int8: the output of {name!r} is off by {noise:.2g} from that in fp32; at most {most:.2g} is noise"
        alone = quantized.alone_outputs[name]
        yield from subject.compare(f"int8: the output of {name!r} in a batch", alone, found)


def _save_and_load(subject: _Subject, build: Callable[[], Any]) -> Iterator[str]:
    weights = subject.module.state_dict()
    saved = safetensors.torch.save({name: each.contiguous() for name, each in weights.items()})
    again = replace(subject, model=build(), tolerance=0.0)
    again.module.load_state_dict(safetensors.torch.load(saved))
    loaded = again.outputs(subject.batches.together)
    for name, output in subject.together_outputs.items():
        yield from again.compare(f"saving: the output of {name!r} after saving and loading", output, loaded[name])


def _gradients(subject: _Subject) -> Iterator[str]:
    subject.model.train()
    subject.model.loss(subject.batches.together).total.backward()  # type: ignore[no-untyped-call]
    yield from without_gradient(subject.module)


def _wider(targets: Targets) -> Targets:
    """The same targets with more padding, where they are tokens."""
    if not isinstance(targets, TokenTargets):
        return targets
    return replace(targets, ids=F.pad(targets.ids, (0, 3)))


def _loss_after_prompts(scorer: TokenScorer, batch: Batch) -> Tensor:
    """The loss of the targets, given to the scorer one token after the other."""
    begins = torch.tensor([len(prefix) for prefix in scorer.prefixes])
    total = torch.zeros(())
    log_probs = scorer.advance(batch.tokens.ids[:, : int(begins.min())])
    for column in range(int(begins.min()), batch.tokens.ids.shape[1]):
        is_emitted = (begins <= column) & (column < batch.tokens.lengths)
        token = batch.tokens.ids[:, column : column + 1]
        total -= log_probs.gather(1, token)[is_emitted].sum()
        if column + 1 < batch.tokens.ids.shape[1]:
            log_probs = scorer.advance(token)
    return total


def _lattice_loss(scorer: TransducerScorer, batch: Batch) -> Tensor:
    """The loss of the targets over all their alignments, from the scorer's answers about every frame and label."""
    total = torch.zeros(())
    rows = zip(batch.tokens.ids, batch.tokens.lengths.tolist(), scorer.lengths.tolist(), strict=True)
    for utterance, (target, labels, frames) in enumerate(rows):
        after, states = scorer.start(1)
        predicted = [after]
        for label in target[:labels, None]:
            after, states = scorer.predict(label, states)
            predicted.append(after)
        every = torch.cat(predicted).repeat(frames, 1)
        places = torch.arange(frames).repeat_interleave(labels + 1)
        log_probs = scorer.join(torch.full_like(places, utterance), places, every)[0].view(frames, labels + 1, -1)
        total -= _probability(log_probs[..., scorer.blank], log_probs[:, range(labels), target[:labels]])
    return total


def _probability(blanks: Tensor, labels: Tensor) -> Tensor:
    """The log-probability of a target: of each frame's blank (F, U + 1) and next label (F, U) after each label."""
    passed = F.pad(blanks.cumsum(0)[:-1], (0, 0, 1, 0))  # of all blanks before a frame
    reached = passed[:, 0]
    for place in range(labels.shape[1]):
        entered, before = reached + labels[:, place], passed[:, place + 1]
        reached = before + (entered - before).logcumsumexp(0)
    return reached[-1] + blanks[-1, -1]


def _loss_of(scorer: CtcScorer | LabelScorer | LikelihoodScorer, batch: Batch) -> Tensor:
    if isinstance(scorer, LikelihoodScorer):
        return -scorer.log_probs.sum()
    if isinstance(scorer, LabelScorer):
        return F.nll_loss(scorer.log_probs, batch.tokens.ids[:, 0], reduction="sum")
    return F.ctc_loss(
        scorer.log_probs.transpose(0, 1), batch.tokens.ids, scorer.lengths, batch.tokens.lengths, reduction="sum"
    )
