"""The family's promises, with the task's tokens and random weights."""

import pytest
import torch

from attune.corpora import open_manifest
from attune.families.aed import FAMILY, AedConfig
from attune.tasks.transcribe import TASK
from attune.testing import check_family, make_corpus


@pytest.fixture(scope="module")
def task_and_corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aed")
    corpus = open_manifest(make_corpus(folder, utterances=4), folder / "index")
    config = TASK.Config()
    (folder / "task").mkdir()
    TASK.prepare(config, corpus, folder / "task")
    return TASK(config, folder / "task"), corpus


def test_an_attention_model_keeps_what_every_family_promises(task_and_corpus):
    torch.manual_seed(1)
    # The loss of a search is that of the attention alone, without smoothing.
    check_family(FAMILY, AedConfig(size="tiny", tokens="task", ctc_weight=0.0, label_smoothing=0.0), *task_and_corpus)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({}, "give `weights`"), ({"size": "tiny"}, "tokens: task"), ({"weights": "x", "size": "tiny"}, "give `weights`")],
)
def test_a_config_names_weights_or_a_size(settings, message):
    with pytest.raises(ValueError, match=message):
        AedConfig(**settings)
