"""The family's promises, with the task's tokens and random weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from attune import recipe as recipes
from attune.audio.decode import read_audio
from attune.corpora import open_manifest
from attune.decoding.predict import prepare_for_decoding
from attune.decoding.search import Search, search
from attune.decoding.settings import SearchConfig
from attune.errors import ModelError
from attune.families.aed import FAMILY, AedConfig
from attune.families.aed.front_end import AedFrontEnd
from attune.families.aed.model import AedModel
from attune.families.aed.normalization import FeatureNorm
from attune.families.aed.shape import PRESETS, read_shape, write_shape
from attune.families.aed.vocabulary import END
from attune.loading.language_models import search_of
from attune.site import this_site
from attune.stages.context import Saved
from attune.stages.train import Request, train
from attune.tasks.transcribe import TASK
from attune.testing import check_family, make_corpus
from attune.testing.ranks import run_ranks
from attune.text.arpa import write_arpa
from attune.text.kneser_ney import estimate
from attune.training.adapt import adapt
from attune.training.settings import AdaptConfig
from attune.world import World

from killing import bits
from tiny import RECIPE, batch_of, write_recipe


@pytest.fixture(scope="module")
def task_and_corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aed")
    corpus = open_manifest(make_corpus(folder, utterances=4), folder / "index")
    config = TASK.Config()
    (folder / "task").mkdir()
    TASK.prepare(config, corpus, folder / "task")
    return TASK(config, folder / "task"), corpus


@pytest.mark.parametrize("normalize", ["global", "sentence"])
@pytest.mark.parametrize("size", ["tiny", "tiny-conformer", "tiny-transformer"])
def test_an_attention_model_keeps_what_every_family_promises(task_and_corpus, size, normalize):
    torch.manual_seed(1)
    # The loss of a search is that of the attention alone, without smoothing.
    config = AedConfig(size=size, tokens="task", ctc_weight=0.0, label_smoothing=0.0, normalize=normalize)
    check_family(FAMILY, config, *task_and_corpus)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({}, "set `weights`"), ({"size": "tiny"}, "tokens: task")],
)
def test_a_config_names_weights_or_a_size(settings, message):
    with pytest.raises(ValueError, match=message):
        AedConfig(**settings)


@pytest.mark.parametrize("size", ["tiny-conformer", "tiny-transformer"])
def test_a_cached_decoder_scores_what_it_learns_and_shows_where_it_looks(task_and_corpus, size):
    task, _ = task_and_corpus
    torch.manual_seed(2)
    model = FAMILY.build(AedConfig(size=size, tokens="task"), task, Path()).model.eval()
    batch = batch_of([(str(row), corpus_audio(row), (0, 3, 2, 4, 0)) for row in range(3)])
    with torch.no_grad():
        frames, lengths = model.encode(batch)
        together = model.decoder(batch.tokens.ids[:, :-1], model.decoder.attend(frames, lengths)).log_softmax(-1)
        scorer = model.scorer(batch)
        for place in range(4):
            step = scorer.advance(batch.tokens.ids[:, place : place + 1])
            torch.testing.assert_close(step, together[:, place], atol=1e-5, rtol=0)
            torch.testing.assert_close(scorer.attention.sum(1), torch.ones(3))
            assert not scorer.attention[lengths < lengths.max(), -1].any()


def corpus_audio(row):
    return np.random.default_rng(row).normal(size=4000 + 2500 * row).astype(np.float32) * 0.1


def test_global_statistics_are_those_of_all_frames_so_far_whatever_the_micro_batches():
    rows = [(str(row), corpus_audio(row), (0, 1, 0)) for row in range(6)]
    found = []
    for cut in (1, 2, 6):
        front = AedFrontEnd(PRESETS["tiny"], "global").train()
        front.norm.follows = True
        for _ in range(2):  # two steps, which see the same
            tally = front.norm.begin_step()
            for first in range(0, 6, cut):
                batch = batch_of(rows[first : first + cut])
                front(batch.audio, batch.lengths)[0].sum().backward()
            FeatureNorm.settle([front.norm], [tally.grad])
        found.append(front.norm)
    batches = [batch_of([row]) for row in rows]
    frames = torch.cat([front.energies(each.audio, each.lengths)[0][0] for each in batches]).double()
    for norm in found:
        assert float(norm.count) == 2 * len(frames)
        torch.testing.assert_close(norm.mean.double(), frames.mean(0), atol=1e-4, rtol=0)
        torch.testing.assert_close(norm.deviation.double(), frames.std(0, correction=0), atol=1e-4, rtol=0)


def test_statistics_stay_as_they_are_after_the_epochs_and_for_pretrained_weights():
    model = AedModel(PRESETS["tiny"], AedConfig(size="tiny", tokens="task", normalize_epochs=1)).train()
    batch = batch_of([("a", corpus_audio(1), (0, 5, 0))])
    for epoch, grows in ((0, True), (1, False)):
        model.set_epoch(epoch)
        tally = model.front_end.norm.begin_step()
        model.loss(batch).total.backward()
        assert (tally.grad is not None) == grows
    assert AedConfig(weights="x").epochs_counted == 0


def test_ctc_is_in_the_loss_of_the_first_epochs_alone():
    config = AedConfig(size="tiny", tokens="task", ctc_weight=0.4, ctc_epochs=2)
    torch.manual_seed(3)
    model = AedModel(PRESETS["tiny"], config).eval()
    batch, losses = batch_of([("a", corpus_audio(2), (0, 5, 7, 0))]), []
    for epoch in (0, 1, 2, 7):
        model.set_epoch(epoch)
        losses.append(model.loss(batch).total.item())
    assert losses[0] == losses[1] != losses[2] == losses[3]


@torch.no_grad()
def test_label_smoothing_is_a_sum_that_adds_up_over_micro_batches():
    torch.manual_seed(3)
    model = AedModel(PRESETS["tiny"], AedConfig(size="tiny", tokens="task", label_smoothing=0.2)).eval()
    rows = [(str(row), corpus_audio(row), (0, *range(1, 3 + row), 0)) for row in range(3)]
    whole = model.loss(batch_of(rows))
    parts = [model.loss(batch_of([row])) for row in rows]
    assert float(whole.total) == pytest.approx(sum(float(part.total) for part in parts), rel=1e-5)
    assert int(whole.count) == sum(int(part.count) for part in parts)


@pytest.mark.parametrize(("size", "layers"), [("tiny", 3), ("tiny-conformer", 12), ("tiny-transformer", 12)])
def test_every_size_has_layers_for_lora(size, layers):
    pytest.importorskip("peft")
    model = AedModel(PRESETS[size], AedConfig(size=size, tokens="task"))
    adapted = adapt(model, AdaptConfig(method="lora"), 1, (), FAMILY.lora_targets)
    assert len(adapted.lora_layers) == layers


@pytest.mark.parametrize("size", PRESETS)
def test_sizes_are_written_and_read_back(size, tmp_path):
    write_shape(PRESETS[size], tmp_path)
    assert read_shape(tmp_path) == PRESETS[size]


@pytest.mark.parametrize(
    "text",
    ['{"encoder": {"width": 3}, "decoder": {}}', "[]", "{", '{"encoder": 1}'],
)
def test_a_file_that_describes_nothing_is_refused(text, tmp_path):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelError, match="does not describe an attention encoder-decoder"):
        read_shape(tmp_path)


@pytest.mark.recipe
@pytest.mark.parametrize("size", ["tiny", "tiny-conformer", "tiny-transformer"])
def test_a_step_is_the_same_bits_on_two_ranks_and_after_a_stop(tmp_path, size):
    settings = [f"model.size={size}", "model.ctc_epochs=1", "model.normalize_epochs=1", "train.strict=true"]
    recipe = write_recipe(tmp_path, text=RECIPE.replace("family: ssl", "family: aed, tokens: task, size: tiny"))
    settings += ["train.steps=4", "train.eval_every=4", "train.save_every=1", "data.test=[]", "batches.micro_seconds=2"]

    def run(world, name, stop=None):
        loaded = recipes.load(recipe, [*settings, f"run={tmp_path / name}"]).recipe
        for event in train(loaded, Request(["attune"]), this_site(workers=0), world):
            if isinstance(event, Saved) and event.step == stop:
                return

    run(World.alone(), "whole")
    run(World.alone(), "stopped", stop=2)
    run_ranks(2, run, "stopped")
    assert bits(tmp_path / "stopped", 4) == bits(tmp_path / "whole", 4)
    saved = load_file(tmp_path / "whole/checkpoints/step-000004/model.safetensors")
    assert float(saved["front_end.norm.count"]) > 0


@pytest.mark.recipe
@pytest.mark.parametrize("size", ["tiny-conformer", "tiny-transformer"])
def test_a_model_learns_a_few_utterances_and_joint_decoding_finds_it(task_and_corpus, size):
    task, corpus = task_and_corpus
    torch.manual_seed(4)
    built = FAMILY.build(AedConfig(size=size, tokens="task", normalize="sentence"), task, Path())
    rows = [(each.id, read_audio(each.audio), built.codec.target(each)) for each in corpus]
    batch, optimizer = batch_of(rows), torch.optim.AdamW(built.module.parameters(), lr=3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        loss = built.model.train().loss(batch)
        (loss.total / loss.count).backward()
        optimizer.step()
    with torch.no_grad():
        found = search(built.model.eval().scorer(batch), Search("beam", 4, ctc_weight=0.3))
    assert [built.codec.read(each) for each in found] == [each.text for each in corpus]


@torch.no_grad()
@pytest.mark.parametrize("size", ["tiny", "tiny-conformer", "tiny-transformer"])
def test_a_recording_shorter_than_a_frame_of_the_encoder_is_decoded_alone_as_in_any_batch(task_and_corpus, size):
    torch.manual_seed(4)
    model = FAMILY.build(AedConfig(size=size, tokens="task"), task_and_corpus[0], Path()).model.eval()
    rows = [(f"{samples}", corpus_audio(samples)[:samples], (0,)) for samples in (1, 160, 400, 4000)]
    alone = [search(model.scorer(batch_of([row])), Search())[0] for row in rows]
    together = search(model.scorer(batch_of(rows)), Search())
    assert [each.tokens for each in alone] == [each.tokens for each in together]
    assert [each.score for each in alone] == pytest.approx([each.score for each in together], abs=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("size", ["tiny", "tiny-conformer", "tiny-transformer"])
def test_half_precision_is_near_full_precision_and_leaves_the_model_as_it_is(task_and_corpus, size, precision):
    torch.manual_seed(5)
    built = FAMILY.build(AedConfig(size=size, tokens="task"), task_and_corpus[0], Path())
    batch = batch_of([(str(row), corpus_audio(row), (0,)) for row in range(2)])
    narrow = prepare_for_decoding(built, Search(precision=precision)).model
    exact, near = (model.scorer(batch).advance(batch.tokens.ids) for model in (built.model.eval(), narrow))
    assert 0 < float((near - exact).abs().max()) < 0.05 and built.model.narrow is None


def test_an_arpa_file_says_how_probable_the_end_of_a_text_is(task_and_corpus, tmp_path):
    built = FAMILY.build(AedConfig(size="tiny", tokens="task"), task_and_corpus[0], Path())
    write_arpa(estimate([["o", "n", "e"]] * 3 + [["e", "n"]], 2), tmp_path / "lm.arpa")
    fusion = search_of(
        SearchConfig(search="beam", lm=str(tmp_path / "lm.arpa")), built, this_site(), World.alone()
    ).fusion
    after = fusion.model.score(torch.tensor([built.codec.pieces.index("e")]), fusion.model.start(1)[1])[0][0]
    assert int(after.argmax()) == END
