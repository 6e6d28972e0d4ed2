"""Every task keeps its promises: as a task, and as a model on an encoder."""

import numpy as np
import pytest
import torch

from attune import catalog
from attune.batches.load import Reader
from attune.families.ssl import FAMILY, SslConfig
from attune.tasks.spot_queries import SpotQueriesConfig
from attune.testing import check_family, check_task
from attune.testing.outputs import outputs_of

import small_corpora as corpora
from task_cases import CASES, WITH_HEADS, prepared

pytestmark = pytest.mark.recipe


@pytest.fixture(params=CASES)
def case(request):
    return request.param, CASES[request.param]


def test_every_task_is_checked():
    elsewhere = {"classify", "transcribe", "language_model"}  # in their own files
    assert {*CASES, *elsewhere} == set(catalog.names(catalog.TASKS))


@pytest.mark.parametrize("name", WITH_HEADS)
def test_in_a_batch_of_eight_every_head_computes_the_same_bits_as_alone(name, tmp_path):
    task, utterances = prepared(name, tmp_path)
    torch.manual_seed(1)
    built = FAMILY.build(SslConfig(stack=1), task, tmp_path)
    reader, model = Reader(utterances, built.codec.prompt), built.model.eval()

    def outputs(rows):
        with torch.no_grad():
            return outputs_of(model.scorer(reader.read(np.array(rows))[0]))

    rows = [number % len(utterances) for number in range(8)]
    alone, together = [outputs([row])[0] for row in rows], outputs(rows)
    # Phases that Griffin and Lim iterate over are divided by nearly nothing; found: 2e-10 of 0.05.
    within = 1e-8 if name == "convert_voice" else 0
    assert max(float((a - b).abs().max()) for a, b in zip(alone, together, strict=True)) <= within


def test_keeps_the_promises_of_a_task_and_of_a_model(case, tmp_path):
    name, own = case
    task = catalog.find(catalog.TASKS, name)
    utterances = corpora.utterances_of(own.write(tmp_path))
    config = own.config or SpotQueriesConfig(matches={"test": str(tmp_path / "a-matches.txt")})
    check_task(task, config, utterances, own.perfect)
    (tmp_path / "task").mkdir()
    task.prepare(config, utterances, tmp_path / "task")
    check_family(FAMILY, SslConfig(stack=1), task(config, tmp_path / "task"), utterances[:3])
