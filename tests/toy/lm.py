"""A language model over characters: text alone, no audio, scored by perplexity. A task and a family in one file."""

# B batch, U characters, V vocabulary
import math
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import nn

from attune.audio.features import within
from attune.contracts import Family, TaskModel
from attune.scorers import LikelihoodScorer
from attune.scoring import bootstrap
from attune.types import Loss, Metric, Scores, target_text

PERPLEXITY = Metric("perplexity", "", False, "The inverse geometric mean of the probability of each character.")
VOCABULARY = 128
END = 3  # ASCII's end of text


@dataclass(frozen=True)
class LanguageConfig:
    """Nothing to choose."""


class Language:
    Config = LanguageConfig
    metrics = (PERPLEXITY,)
    scored_over = "utterances"
    needs_audio = False

    def __init__(self, config, folder):
        pass

    @staticmethod
    def missing_field(config, utterance):
        return None if utterance.text is not None else "text"

    @staticmethod
    def prepare(config, utterances, folder):
        pass

    @staticmethod
    def can_reuse(config, folder, utterances):
        return True

    def target(self, utterance):
        return (*utterance.text.encode("ascii", "replace"), END)

    def reference(self, utterance):
        return None

    def frames_needed(self, target):
        return 0

    def read(self, output):
        return {"log_prob": round(output.log_prob, 4), "tokens": output.count}

    def scoring_files(self, split):
        return {}

    def score(self, predictions, context):
        found = [each for each in predictions if each.value is not None]
        losses = np.array([-each.value["log_prob"] for each in found])
        tokens = np.array([each.value["tokens"] for each in found])

        def perplexity(rows):
            return math.exp(losses[rows].sum() / max(1, tokens[rows].sum()))

        score = bootstrap.statistic(PERPLEXITY, perplexity, [each.id for each in found])
        counts = {"num_tokens": int(tokens.sum()), "num_absent": len(predictions) - len(found)}
        return Scores({"perplexity": score}, counts)


@dataclass(frozen=True)
class Codec:
    """The text is learned, and in decoding it is what is scored."""

    task: Language
    pieces: tuple[str, ...] = ()

    def target(self, utterance):
        return self.task.target(utterance)

    prompt = target

    def frames_needed(self, target):
        return 0

    def read(self, output):
        return self.task.read(output)

    def join(self, values, whole):
        raise NotImplementedError("text is not cut")

    def describe(self, target):
        return target_text(target)


@dataclass(frozen=True)
class Config:
    weights: str | None = None
    width: int = 24


class CharacterModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, config.width)
        self.layer = nn.GRU(config.width, config.width, batch_first=True)
        self.output = nn.Linear(config.width, VOCABULARY)

    def losses(self, batch):
        """The negative log-probability of each utterance's text (B,); each text begins after an end."""
        ids, lengths = batch.tokens.ids, batch.tokens.lengths
        before = F.pad(ids[:, :-1], (1, 0), value=END)
        logits = self.output(self.layer(self.embedding(before))[0]).float()
        each = F.cross_entropy(logits.transpose(1, 2), ids, reduction="none")
        return (each * within(lengths, ids.shape[1])).sum(1)

    def loss(self, batch):
        return Loss(self.losses(batch).sum(), batch.tokens.lengths.sum())

    def scorer(self, batch):
        return LikelihoodScorer(-self.losses(batch), batch.tokens.lengths)

    def frames(self, samples):
        return 0

    def graph_samples(self, samples):
        return None


TASK = Language
FAMILY = Family(
    config=Config,
    build=lambda config, task, assets: TaskModel(CharacterModel(config), Codec(task), "likelihood"),
    architecture_settings=("width",),
)
