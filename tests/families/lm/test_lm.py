"""A language model is trained on text alone by the same loop, and fused in the beams of recognizers of its tokens."""

import json
import re
from pathlib import Path

import pytest
import torch

import attune
from attune.cli import main
from attune.corpora import open_manifest
from attune.decoding import ctc
from attune.decoding.fusion import Fusion
from attune.errors import ModelError
from attune.families.lm import FAMILY, LmConfig
from attune.families.lm.model import FusedLm
from attune.families.lm.transformer import TransformerLm, TransformerLmShape
from attune.loading.language_models import read_neural_lm
from attune.tasks.language_model import TASK, LanguageModelConfig
from attune.testing import check_family, make_corpus
from attune.types import CtcScorer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return list(open_manifest(make_corpus(folder, utterances=24), folder / "index"))


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_keeps_every_promise(corpus, tmp_path, kind):
    config = LanguageModelConfig()
    TASK.prepare(config, corpus, tmp_path)
    torch.manual_seed(3)
    check_family(FAMILY, LmConfig(kind=kind, size="tiny"), TASK(config, tmp_path), corpus[:4])


def test_a_transformers_rows_advance_each_by_its_own_tokens():
    torch.manual_seed(0)
    shape = TransformerLmShape(tokens=7, width=16, heads=2, layers=2, feed_forward=32)
    net = TransformerLm(shape).eval()
    texts = [[1, 2, 3], [4] * 40, [5, 6] * 17]
    with torch.no_grad():
        expected = [net(torch.tensor([[0, *text]]))[0][0, -1].log_softmax(-1) for text in texts]
    fusion = Fusion(FusedLm(net), 1.0)
    rows = fusion.start(3)
    for place in range(40):  # rows whose text is over stand still
        labels = torch.tensor([text[place] if place < len(text) else 0 for text in texts])
        rows = fusion.advance(rows, labels, torch.tensor([place < len(text) for text in texts]), torch.zeros(3))
    assert torch.allclose(rows.log_probs, torch.stack(expected), atol=1e-5)
    swapped = fusion.advance(
        rows.select(torch.tensor([2, 0, 0])), torch.tensor([1, 2, 3]), torch.ones(3).bool(), torch.zeros(3)
    )
    with torch.no_grad():
        alone = net(torch.tensor([[0, *texts[0], 3]]))[0][0, -1].log_softmax(-1)
    assert torch.allclose(swapped.log_probs[2], alone, atol=1e-5)


RECIPE = """\
run: {folder}/run
data: {{train: [{folder}/texts.txt], dev: [{folder}/held.jsonl]}}
task: {{name: language_model}}
model: {{family: lm, kind: {kind}, size: tiny}}
batches: {{micro_utterances: 8}}
optimizer: {{lr: 0.01}}
train: {{steps: 30, eval_every: 2, save_every: 30}}
"""


def write_texts(path, texts):
    path.write_text("".join(json.dumps({"id": f"{number}", "text": text}) + "\n" for number, text in enumerate(texts)))


@pytest.fixture(scope="module", params=["rnn", "transformer"])
def run(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("lm")
    (folder / "texts.txt").write_text("ab ab ab\nab ab\n\nba\n" * 20)
    write_texts(folder / "held.jsonl", ["ab ab ab", "ba"])
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder, kind=request.param))
    return attune.train(folder / "recipe.yaml")


def test_text_alone_is_learned_and_perplexity_falls(run):
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    perplexities = [each["perplexity"] for each in lines if each["event"] == "scores"]
    assert perplexities[-1] < 1.7 < 1.9 < perplexities[0]


def test_texts_have_no_seconds_in_what_training_prints(run, capsys):
    few = ["train.steps=1", "train.save_every=1", "train.eval_every=null", f"run={run.folder}-more", "--workers=0"]
    assert main(["train", str(run.folder.parent / "recipe.yaml"), *few]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^training set: 60 texts; model: ", printed, re.MULTILINE)
    assert re.search(r"^first example: [^ ]+/texts.txt:\d+: ", printed, re.MULTILINE)


class Searched:
    """A model that is searched, as far as its tokens matter."""

    def __init__(self, pieces, scorer):
        self.codec, self.scorer = self, scorer
        self.pieces = pieces


def test_a_beam_fuses_it_and_finds_what_the_text_makes_likely(run):
    pieces = tuple(attune_pieces(run))
    a, b = pieces.index("a"), pieces.index("b")
    even = torch.full((1, 3, len(pieces)), -9.0)
    even[0, (0, 0, 1, 2, 2), (a, b, 0, a, b)] = -0.7  # two letters that sound alike, and a blank between them
    scorer = CtcScorer(even.log_softmax(-1), torch.tensor([3]))
    lm = read_neural_lm(run.folder, Searched(pieces, "ctc"), torch.device("cpu"))
    ((found,),) = ctc.beam_search(scorer, 4, Fusion(lm, 1.0))
    assert found.tokens == (a, b)


def attune_pieces(run):
    task = TASK(LanguageModelConfig(), run.task)
    return task.pieces


def test_a_transducers_labels_are_the_tokens_less_one(run):
    pieces = tuple(attune_pieces(run))
    plain = read_neural_lm(run.folder, Searched(pieces, "ctc"), torch.device("cpu"))
    moved = read_neural_lm(run.folder, Searched(pieces[1:], "transducer"), torch.device("cpu"))
    (first, states), (other, others) = plain.start(2), moved.start(2)
    assert torch.equal(first[:, 1:], other)
    labels = torch.tensor([2, 3])
    assert torch.equal(plain.score(labels, states)[0][:, 1:], moved.score(labels - 1, others)[0])


def test_other_tokens_are_refused_with_both_fingerprints(run):
    with pytest.raises(ModelError, match=r"has different tokens \(\d+, \w{8}\) than this model \(3, \w{8}\)"):
        read_neural_lm(run.folder, Searched(("a", "b", "c"), "ctc"), torch.device("cpu"))


def test_what_is_no_language_model_is_refused(tmp_path):
    from untrained import write_model

    folder = write_model(tmp_path)
    with pytest.raises(ModelError, match="is not a language model"):
        read_neural_lm(Path(folder), Searched(("a",), "ctc"), torch.device("cpu"))
