"""Others' checkpoints as model folders: what `model.weights` would adopt, kept in attune's own form."""

import tempfile
from pathlib import Path

from attune import catalog
from attune import recipe as recipes
from attune.errors import ModelError
from attune.files import refusal_told, write_text
from attune.plain_yaml import inline_yaml
from attune.run import Run
from attune.site import Site
from attune.sources import locate
from attune.stages.assemble import assemble, export
from attune.stages.begin import PretrainedSource, load_pretrained_weights, prepare

RECIPE = """\
run: {folder}
seed: 0
data: {{train: [{source}]}}  # not known; the model was imported from there
task: {{name: transcribe}}
model: {{family: {family}, weights: {source}}}
batches: {{micro_utterances: 8}}
optimizer: {{lr: 1e-4}}
train: {{steps: 1}}
"""


def import_model(source: str, folder: Path, site: Site, tokenizer: str | None = None) -> int:
    """Make a model folder of a checkpoint, and of the tokenizer for a .pt; returns how many parameters it has."""
    path = locate(source, site.cache)
    family = next((name for name in catalog.names("families") if catalog.find("families", name).recognizes(path)), None)
    if family is None:
        raise ModelError(
            f"{source} cannot be imported: no family knows it. Expected a .nemo file, a folder of a Whisper in "
            "transformers' format, or a .pt file of OpenAI's."
        )
    if folder.exists():
        raise ModelError(f"{folder} is already there. Name another folder, or remove it first.")
    if tokenizer is not None and path.suffix != ".pt":
        raise ModelError(f"{source} brings its own tokenizer. Leave --tokenizer out: it is for a .pt file of OpenAI's.")
    settings = [f"model.tokenizer={inline_yaml(str(locate(tokenizer, site.cache)))}"] if tokenizer is not None else []
    with tempfile.TemporaryDirectory() as scratch:
        run, written = Run(Path(scratch)), Path(scratch) / "recipe.yaml"
        values = {"folder": inline_yaml(str(folder)), "source": inline_yaml(str(path)), "family": family}
        write_text(written, RECIPE.format(**values))
        recipe, origin = recipes.load(written, settings).recipe, PretrainedSource(external=path)
        prepare(recipe, origin, (), run.task, run.assets)
        recipe = recipes.load(
            written, [*settings, *catalog.find("families", family).recommended_overrides(run.assets)]
        ).recipe
        assembled = assemble(recipe, run.task, run.assets)
        missing = load_pretrained_weights(assembled, recipe, origin, run.task).new_tensors
        if missing:
            raise ModelError(f"{path} lacks {', '.join(missing[:5])}, which this model needs.")
        with refusal_told(folder, "Choose another place.", ModelError):
            folder.parent.mkdir(parents=True, exist_ok=True)
        export(folder, recipe, run, assembled.built.model)
    return sum(weight.numel() for weight in assembled.built.model.parameters())
