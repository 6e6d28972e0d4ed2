"""Transducers to search: a random one of any size, and the golden models' own prediction nets and joints."""

import io
import json
import math
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

GOLDEN = ("contextnet", "conformer", "fastconformer", "fastconformer-tdt")


def seeds(count: int, quick: int) -> list:
    """So many seeds; those after the first few are for the whole run of the tests."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.recipe) for seed in range(quick, count))]


class LstmTransducer(nn.Module):
    """A prediction net and a joint; `durations` other than () make it a TDT model, whose blank is the last token."""

    def __init__(self, tokens, frame_width, durations=(), width=32, hidden=48, layers=1):
        super().__init__()
        self.durations, self.blank = tuple(durations), tokens - 1
        self.embed = nn.Embedding(tokens, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.from_frames = nn.Linear(frame_width, hidden)
        self.from_labels = nn.Linear(width, hidden)
        self.output = nn.Linear(hidden, tokens + len(self.durations))

    def scorer(self, frames: list[Tensor]) -> "Scorer":
        """What to search: a (T, D) tensor for each utterance."""
        return Scorer(self, frames)


class Scorer:
    """A `TransducerScorer` over these frames, which counts the rows it is asked for."""

    def __init__(self, model: LstmTransducer, frames: list[Tensor]) -> None:
        self.model = model
        self.device = model.output.weight.device
        self.lengths = torch.tensor([len(each) for each in frames], device=self.device)
        self.blank, self.durations = model.blank, model.durations
        projected = [model.from_frames(each.to(self.device)) for each in frames] or [torch.zeros(0, 1)]
        # Padding that is read shows at once.
        self.frames = pad_sequence(projected, batch_first=True, padding_value=math.nan)
        self.rows_joined = 0

    def start(self, rows):
        shape = (rows, self.model.lstm.num_layers, self.model.lstm.hidden_size)
        zeros = torch.zeros(shape, device=self.device)
        return self._step(torch.zeros(rows, 1, self.model.embed.embedding_dim, device=self.device), (zeros, zeros))

    def predict(self, labels, states):
        return self._step(self.model.embed(labels)[:, None], states)

    def join(self, utterances, frames, predicted):
        self.rows_joined += len(utterances)
        logits = self.model.output(torch.relu(self.frames[utterances, frames] + predicted)).float()
        tokens = logits.shape[1] - len(self.durations)
        return logits[:, :tokens].log_softmax(1), logits[:, tokens:].log_softmax(1)

    def _step(self, embedded, states):
        before = tuple(state.transpose(0, 1).contiguous() for state in states)
        out, after = self.model.lstm(embedded, before)
        return self.model.from_labels(out[:, 0]), tuple(state.transpose(0, 1) for state in after)


def random_transducer(tokens=6, durations=(), seed=0, sharpness=4.0, blank_bias=0.0) -> LstmTransducer:
    """A model whose answers depend on frame and labels, and are far from even."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LstmTransducer(tokens, frame_width=8, durations=durations, width=8, hidden=16).eval()
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(1.5)
        model.output.weight.mul_(sharpness)
        model.output.bias[model.blank] += blank_bias
    return model.requires_grad_(False)


def random_frames(lengths, seed=0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [2 * torch.randn(length, 8, generator=generator) for length in lengths]


@dataclass(frozen=True)
class Golden:
    model: LstmTransducer
    frames: list[Tensor]
    clips: list[dict]
    pieces: list[str]


def golden(name: str) -> Golden:
    """A golden model's prediction net and joint, and what its encoder made of each clip alone."""
    folder = golden_folder(name)
    expected = json.loads((folder / "expected.json").read_text())
    tensors = load_file(folder / "expected.safetensors")
    frames = [tensors[f"alone.{index}.encoder"].T.contiguous() for index in range(len(expected["clips"]))]
    durations = range(5) if name.endswith("tdt") else ()
    return Golden(_read_nemo(folder / "model.nemo", durations), frames, expected["clips"], expected["pieces"])


def golden_folder(name: str) -> Path:
    """The fixtures lie in a folder `shared` beside or above the checkout; the test is skipped where there is none."""
    for parent in Path(__file__).parents:
        folder = parent / "shared" / "fixtures" / f"nemo-{name}"
        if folder.is_dir():
            return folder
    pytest.skip(f"needs the golden files nemo-{name}")


def _read_nemo(path: Path, durations) -> LstmTransducer:
    with tarfile.open(path) as archive:
        member = archive.extractfile("./model_weights.ckpt")
        weights = torch.load(io.BytesIO(member.read()), weights_only=True)
    layers = sum("weight_ih" in name for name in weights)
    outputs, hidden = weights["joint.joint_net.2.weight"].shape
    tokens, width = weights["decoder.prediction.embed.weight"].shape
    model = LstmTransducer(tokens, weights["joint.enc.weight"].shape[1], durations, width, hidden, layers)
    assert outputs == tokens + len(model.durations)
    names = {
        "decoder.prediction.embed.": "embed.",
        "decoder.prediction.dec_rnn.lstm.": "lstm.",
        "joint.enc.": "from_frames.",
        "joint.pred.": "from_labels.",
        "joint.joint_net.2.": "output.",
    }
    own = {
        name.replace(theirs, ours): tensor
        for name, tensor in weights.items()
        for theirs, ours in names.items()
        if name.startswith(theirs)
    }
    model.load_state_dict(own)
    return model.eval().requires_grad_(False)


def alignments(scorer: Scorer, max_labels: int, only: tuple[int, ...] | None = None):
    """Every way through the only utterance, or those that say `only` this: its labels and log-probability."""
    end = int(scorer.lengths[0])

    def follow(labels, frame, repeats, predicted, states, score):
        if frame >= end:
            yield labels, score
            return
        tokens, durations = scorer.join(torch.tensor([0]), torch.tensor([frame]), predicted)
        for token, gain in enumerate(tokens[0].tolist()):
            is_blank = token == scorer.blank
            if not is_blank and (
                repeats >= max_labels or (only is not None and only[len(labels) : len(labels) + 1] != (token,))
            ):
                continue
            taken = zip(scorer.durations, durations[0].tolist(), strict=True) if scorer.durations else [(is_blank, 0.0)]
            after = (predicted, states) if is_blank else scorer.predict(torch.tensor([token]), states)
            for duration, more in taken:
                if duration or not is_blank:
                    said = labels if is_blank else (*labels, token)
                    count = 0 if duration else repeats + 1
                    yield from follow(said, frame + int(duration), count, *after, score + gain + more)

    yield from follow((), 0, 0, *scorer.start(1), 0.0)


def totals(scorer: Scorer, max_labels: int, only: tuple[int, ...] | None = None) -> dict[tuple[int, ...], float]:
    """The log-probability of every label sequence, over all its alignments."""
    found = {}
    for labels, score in alignments(scorer, max_labels, only):
        found[labels] = math.log(math.exp(found.get(labels, -math.inf)) + math.exp(score))
    return found
