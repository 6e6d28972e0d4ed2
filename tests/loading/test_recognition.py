"""Weights of another family than the recipe's are named, whatever they break."""

import pytest

from attune import recipe as recipes
from attune.errors import ModelError
from attune.loading.begin import ImportRequest, begin_model, import_model
from attune.loading.pretrained import ModelFolders
from attune.site import this_site
from attune.types import Utterance
from attune.world import World

from transducers import golden_folder

RECIPE = """\
run: {folder}/run
data: {{train: [train.jsonl]}}
task: {{name: transcribe}}
model: {model}
batches: {{micro_utterances: 8}}
optimizer: {{lr: 0.1}}
train: {{steps: 2}}
"""


def begun(folder, model):
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(folder=folder, model=model))
    folders = ModelFolders(folder / "task", folder / "assets")
    utterances = [Utterance("a", 1.0, text="yes no")]
    return begin_model(recipes.load(path).recipe, utterances, folders, this_site(), World.alone())


@pytest.mark.parametrize("model", ["family: whisper", "family: aed", "family: ssl, upstream: wav2vec2"])
def test_weights_of_another_family_are_named(tmp_path, model):
    nemo, imported = golden_folder("contextnet") / "model.nemo", tmp_path / "imported"
    import_model(ImportRequest(str(nemo), imported), this_site())
    for weights in (nemo, imported):
        with pytest.raises(ModelError) as caught:
            begun(tmp_path, f"{{{model}, weights: {weights}}}")
        message = str(caught.value)
        assert message.startswith(f"{weights} cannot be loaded with model.family={model.split()[1].strip(',')}: ")
        assert message.endswith("If it is a model of the family 'transducer', set model.family=transducer.")


def test_damage_of_the_own_family_is_reported_as_it_is(tmp_path):
    (tmp_path / "x.nemo").write_bytes(b"not an archive")
    with pytest.raises(ModelError, match=r"^\S+x\.nemo is not a valid \.nemo archive: [^\n]*Download it again\.$"):
        begun(tmp_path, f"{{family: transducer, weights: {tmp_path}/x.nemo}}")
