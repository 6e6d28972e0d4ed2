"""SpeechBrain's TransformerLM: its own numbers by the definition of the architecture, and what it cannot be is refused.

The reference below reads the checkpoint's tensors under SpeechBrain's names, one place and one head at a time.
"""

import math
import re
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from sentencepiece import SentencePieceTrainer

from attune.cli import main
from attune.corpora import open_manifest
from attune.decoding.fusion import Fusion
from attune.errors import ModelError
from attune.families.lm import FAMILY, LmConfig
from attune.families.lm.model import FusedLm
from attune.families.lm.speechbrain import import_lm
from attune.loading.pretrained import open_pretrained
from attune.tasks.language_model import TASK, LanguageModelConfig
from attune.testing import check_family, make_corpus
from attune.types import Batch, TokenTargets, Utterance

TOKENS = 34
TEXT = """\
bos_index: 1
eos_index: 2
lm_model: !new:speechbrain.lobes.models.transformer.TransformerLM.TransformerLM
    vocab: {tokens}
    d_model: {width}
    nhead: {heads}
    num_encoder_layers: {layers}
    num_decoder_layers: 0
    d_ffn: {inner}
    d_embedding: {embedding}
    dropout: 0.0
    activation: !name:torch.nn.{activation}
    normalize_before: {before}
tokenizer: !new:sentencepiece.SentencePieceProcessor
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    loadables:
        lm: !ref <lm_model>
        tokenizer: !ref <tokenizer>
"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    width: int = 16
    heads: int = 2
    layers: int = 2
    inner: int = 24
    embedding: int | None = None
    activation: str = "GELU"
    before: bool = False
    tokens: int = TOKENS


PUBLISHED = Sizes()  # as the language model of the LibriSpeech recipes, but for the width
VARIANTS = [
    PUBLISHED,
    Sizes(layers=1, activation="ReLU", before=True),
    Sizes(width=24, heads=4, embedding=6),
    Sizes(embedding=16, before=True),  # projected all the same
]


def checkpoint(sizes):
    """Random tensors under SpeechBrain's names."""
    torch.manual_seed(5)
    width, embedding = sizes.width, sizes.embedding or sizes.width
    shapes = {"custom_src_module.emb.Embedding.weight": (TOKENS, embedding)}
    linears = {"output_proj.layers.0.w": (width, width), "output_proj.layers.2.w": (TOKENS, width)}
    norms = ["encoder.norm.norm", "output_proj.layers.1.norm"]
    if sizes.embedding:
        linears["embedding_proj.w"] = (width, embedding)
    for layer in (f"encoder.layers.{number}." for number in range(sizes.layers)):
        shapes |= {f"{layer}self_att.att.in_proj_weight": (3 * width, width)}
        shapes |= {f"{layer}self_att.att.in_proj_bias": (3 * width,)}
        linears[f"{layer}self_att.att.out_proj"] = (width, width)
        linears |= {f"{layer}pos_ffn.ffn.0": (sizes.inner, width), f"{layer}pos_ffn.ffn.3": (width, sizes.inner)}
        norms += [f"{layer}norm1.norm", f"{layer}norm2.norm"]
    shapes |= {f"{name}.weight": shape for name, shape in linears.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in linears.items()}
    shapes |= {f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")}
    tensors = {name: torch.randn(shape) / math.sqrt(shape[-1]) for name, shape in shapes.items()}
    return {**tensors, "positional_encoding.pe": torch.zeros(1, 2500, width)}


def reference(tensors, sizes, ids):
    """The log-probabilities after each of the tokens (U, V)."""

    def linear(name, inputs):
        return inputs @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def norm(name, inputs):
        mean, variance = inputs.mean(-1, keepdim=True), inputs.var(-1, correction=0, keepdim=True)
        return (inputs - mean) / (variance + 1e-6).sqrt() * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    hidden = tensors["custom_src_module.emb.Embedding.weight"][ids]
    hidden = hidden * math.sqrt(hidden.shape[-1])
    hidden = linear("embedding_proj.w", hidden) if sizes.embedding else hidden
    for place in range(len(ids)):
        for pair in range(sizes.width // 2):
            angle = place / 10_000 ** (2 * pair / sizes.width)
            hidden[place, 2 * pair] += math.sin(angle)
            hidden[place, 2 * pair + 1] += math.cos(angle)
    activation = {"GELU": F.gelu, "ReLU": F.relu}[sizes.activation]
    for layer in (f"encoder.layers.{number}." for number in range(sizes.layers)):
        inputs = norm(f"{layer}norm1.norm", hidden) if sizes.before else hidden
        joined = inputs @ tensors[f"{layer}self_att.att.in_proj_weight"].T
        hidden = hidden + linear(
            f"{layer}self_att.att.out_proj",
            attended(joined + tensors[f"{layer}self_att.att.in_proj_bias"], ids, sizes.heads),
        )
        hidden = hidden if sizes.before else norm(f"{layer}norm1.norm", hidden)
        inputs = norm(f"{layer}norm2.norm", hidden) if sizes.before else hidden
        hidden = hidden + linear(f"{layer}pos_ffn.ffn.3", activation(linear(f"{layer}pos_ffn.ffn.0", inputs)))
        hidden = hidden if sizes.before else norm(f"{layer}norm2.norm", hidden)
    hidden = linear("output_proj.layers.0.w", norm("encoder.norm.norm", hidden))
    return linear("output_proj.layers.2.w", norm("output_proj.layers.1.norm", hidden)).log_softmax(-1)


def attended(joined, ids, heads):
    """What each place finds at the places up to its own (U, D); those with token 0 are padding."""
    queries, keys, values = (each.unflatten(1, (heads, -1)) for each in joined.chunk(3, 1))
    found = torch.empty_like(queries)
    padding = torch.tensor(ids) == 0
    for place in range(len(ids)):
        for head in range(heads):
            energies = keys[: place + 1, head] @ queries[place, head] / math.sqrt(queries.shape[2])
            weights = energies.masked_fill(padding[: place + 1], -torch.inf).softmax(0)
            # As torch's attention, which SpeechBrain calls, multiplies: nothing times what is not a number is not one.
            found[place, head] = (weights[:, None] * values[: place + 1, head]).sum(0)
    return found.flatten(1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.ckpt"
    with path.open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(["ab ba abba", "the quick brown fox jumps over the lazy dog"] * 4),
            model_writer=file,
            vocab_size=TOKENS,
            unk_id=0,
            bos_id=1,
            eos_id=2,
            minloglevel=2,
        )
    return path


def write_folder(folder, tokenizer, sizes=PUBLISHED, *changes):
    folder.mkdir(exist_ok=True)
    text = TEXT.format(**{**vars(sizes), "embedding": sizes.embedding or "null"})
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "hyperparams.yaml").write_text(text)
    (folder / "tokenizer.ckpt").write_bytes(tokenizer.read_bytes())
    torch.save(checkpoint(sizes), folder / "lm.ckpt")
    return folder


class Text:
    """A task about text, with the model's own tokens."""

    language = None

    def text(self, utterance):
        return utterance.text or ""

    def read(self, output):
        return output


def imported(folder):
    tensors = import_lm(folder, folder).tensors
    (folder / "tokenizer.ckpt").rename(folder / "tokenizer.model")
    built = FAMILY.build(LmConfig(tokens="own"), Text(), folder)
    built.module.load_state_dict(tensors)
    built.module.eval()
    return built


TEXTS = [
    [1, *range(3, 34), *range(3, 9)],
    [1, 9, 0, 8, 8, 0, 0, 7],
    [1, 5, 2, 1, 6],
]  # 0 is the unknown token, and padding


@pytest.mark.parametrize("sizes", VARIANTS, ids=str)
def test_log_probs_are_those_of_the_definition(tmp_path, tokenizer, sizes):
    net, tensors = imported(write_folder(tmp_path, tokenizer, sizes)).module.net, checkpoint(sizes)
    for ids in TEXTS:
        with torch.no_grad():
            found = net(torch.tensor([ids]))[0][0].log_softmax(-1)
        torch.testing.assert_close(found, reference(tensors, sizes, ids), atol=1e-5, rtol=0)


@pytest.mark.parametrize("sizes", VARIANTS, ids=str)
def test_each_row_of_a_search_advances_by_its_own_tokens_to_the_same_log_probs(tmp_path, tokenizer, sizes):
    net = imported(write_folder(tmp_path, tokenizer, sizes)).module.net
    fusion = Fusion(FusedLm(net), 1.0)
    rows = fusion.start(len(TEXTS))
    for place in range(1, max(map(len, TEXTS))):  # rows whose text is over stand still
        labels = torch.tensor([ids[place] if place < len(ids) else 0 for ids in TEXTS])
        is_own = torch.tensor([place < len(ids) for ids in TEXTS])
        rows = fusion.advance(rows, labels, is_own, torch.zeros(len(TEXTS)))
    expected = [reference(checkpoint(sizes), sizes, ids)[-1] for ids in TEXTS]
    torch.testing.assert_close(rows.log_probs, torch.stack(expected), atol=1e-5, rtol=0)


def test_the_loss_of_a_text_is_that_of_its_tokens_and_its_end_after_the_token_that_begins_it(tmp_path, tokenizer):
    built = imported(write_folder(tmp_path, tokenizer))
    ids = built.codec.target(Utterance(id="a", audio=None, seconds=0.0, text="ab Q ba"))
    assert ids[-1] == 2 and 0 in ids and 1 not in ids
    batch = Batch(
        ("a",), torch.zeros(1, 1), torch.tensor([1]), TokenTargets(torch.tensor([ids]), torch.tensor([len(ids)]))
    )
    log_probs = reference(checkpoint(PUBLISHED), PUBLISHED, [1, *ids[:-1]])
    expected = -log_probs[range(len(ids)), list(ids)].sum()
    with torch.no_grad():
        torch.testing.assert_close(built.module.loss(batch).total, expected, atol=1e-4, rtol=0)
    assert built.codec.pieces[2] == "</s>"


def test_a_folder_of_a_language_model_alone_is_imported_as_one(tmp_path, tokenizer, capsys):
    folder, own = write_folder(tmp_path / "speechbrain", tokenizer), tmp_path / "own"
    assert main(["import", str(folder), "--to", str(own)]) == 0
    printed = capsys.readouterr().out
    assert f"Try it: attune evaluate RECOGNIZER --on MANIFEST decode.search=beam decode.lm={own}" in printed
    assert open_pretrained(own).recipe.model.family == "lm"
    (tmp_path / "texts.jsonl").write_text('{"id": "a", "text": "ab ba"}\n')
    assert main(["evaluate", str(own), "--on", str(tmp_path / "texts.jsonl"), "--device", "cpu"]) == 0
    assert "perplexity" in capsys.readouterr().out


def test_the_padding_token_cannot_begin_a_text_as_nothing_could_be_attended_to(tmp_path, tokenizer):
    assert reference(checkpoint(PUBLISHED), PUBLISHED, [0, 4, 5]).isnan().all()
    folder = write_folder(tmp_path, tokenizer, PUBLISHED, ("bos_index: 1\n", "bos_index: 0\n"))
    with pytest.raises(ModelError, match="bos_index=0 for a TransformerLM, which masks token 0 as padding"):
        import_lm(folder, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("num_decoder_layers: 0", "num_decoder_layers: 2", "num_decoder_layers=2 for its TransformerLM; expected 0"),
        ("    dropout: 0.0\n", "    attention_type: RelPosMHAXL\n", "attention_type=RelPosMHAXL"),
        ("    dropout: 0.0\n", "    positional_encoding: null\n", "positional_encoding=None"),
        (
            "torch.nn.GELU",
            "speechbrain.nnet.activations.Swish",
            "activation=Swish for its TransformerLM; expected GELU",
        ),
        ("eos_index: 2", "eos_index: 34", "eos_index=34, which is none of its 34 tokens"),
        ("nhead: 2", "nhead: 3", "Invalid sizes of a Transformer language model"),
        ("vocab: 34", "vocab: !PLACEHOLDER", "vocab=!PLACEHOLDER; expected a whole number"),
    ],
)
def test_variants_that_would_give_other_numbers_are_refused_by_their_key(tmp_path, tokenizer, old, new, named):
    folder = write_folder(tmp_path, tokenizer, PUBLISHED, (old, new))
    with pytest.raises(ModelError, match=re.escape(named)):
        import_lm(folder, tmp_path)


def test_weights_of_another_model_are_refused_by_name(tmp_path, tokenizer):
    folder = write_folder(tmp_path, tokenizer)
    torch.save({**checkpoint(PUBLISHED), "decoder.norm.norm.weight": torch.ones(16)}, folder / "lm.ckpt")
    with pytest.raises(ModelError, match=r"loads 'decoder\.norm\.norm\.weight', which is not a weight of a Trans"):
        import_lm(folder, tmp_path)


@pytest.fixture(scope="module")
def utterances(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return list(open_manifest(make_corpus(folder, utterances=24), folder / "index"))[:4]


@pytest.mark.parametrize("sizes", VARIANTS[:3:2], ids=str)
def test_keeps_every_promise(tmp_path, tokenizer, utterances, sizes):
    folder = write_folder(tmp_path, tokenizer, sizes)
    import_lm(folder, tmp_path)
    check_family(FAMILY, LmConfig(tokens="own"), TASK(LanguageModelConfig(), tmp_path), utterances, tmp_path)
