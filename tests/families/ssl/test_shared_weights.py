"""Ranks that share the weights of an upstream train the model that one rank trains."""

import pytest

from attune.training import checkpoint

from processes import start, wait
from tiny import write_recipe
from tiny_upstreams import make_encoder

pytestmark = pytest.mark.recipe

SETTINGS = ["train.steps=2", "train.warmup=0", "train.save_every=2", "train.eval_every=2", "data.test=[]"]


@pytest.mark.parametrize("adapt", [["adapt.freeze=[upstream]"], []], ids=["frozen", "full"])
def test_two_ranks_that_share_weights_train_the_same(tmp_path, adapt):
    make_encoder("hubert").save_pretrained(tmp_path / "checkpoint")
    recipe = write_recipe(tmp_path, utterances=8)
    model = ["model.upstream=hubert", f"model.weights={tmp_path / 'checkpoint'}"]
    found = []
    for ranks, shard in ((1, "none"), (2, "full")):
        run = tmp_path / f"run-{ranks}"
        words = ["train", str(recipe), f"run={run}", f"train.shard={shard}", *SETTINGS, *model, *adapt]
        assert wait(start([*words, "--workers=0", "--timeout=60"], ranks), 120) == [0] * ranks
        found.append(checkpoint.tensors(run / "checkpoints/step-000002"))
    alone, together = found
    assert max(float((alone[name] - together[name]).abs().max()) for name in alone) < 1e-5
