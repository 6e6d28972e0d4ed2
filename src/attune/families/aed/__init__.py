"""Attention encoder-decoders with CTC, as in SpeechBrain's LibriSpeech recipes: CRDNN, Conformer, Transformer."""

from collections.abc import Mapping
from pathlib import Path

from attune.contracts import Family, ImportedCheckpoint, Importer, Task, TaskModel, VocabularyRules
from attune.families.aed.settings import AedConfig


def build(config: AedConfig, task: Task, assets: Path) -> TaskModel:
    """The model that the files in `assets` or the config describe, with random weights."""
    from attune.families.aed.build import build_aed

    return build_aed(config, task, assets)


def recognizes(path: Path) -> bool:
    """A folder with SpeechBrain's hyperparams.yaml, whatever recognizer it has: others are refused with the reason."""
    if not (path / "hyperparams.yaml").is_file():
        return False
    from attune.families._speechbrain import is_lm_alone

    return not is_lm_alone(path)


def remote_parts(path: Path) -> Mapping[str, str]:
    """What its pretrainer loads from elsewhere."""
    from attune.families._speechbrain import remote_parts as parts

    return parts(path)


def read(config: AedConfig, path: Path, assets: Path) -> ImportedCheckpoint:
    """A folder of SpeechBrain's."""
    from attune.families.aed.speechbrain import import_folder

    return import_folder(path, assets)


FAMILY = Family(
    config=AedConfig,
    build=build,
    importer=Importer(recognizes, read, remote_parts),
    vocabulary=VocabularyRules(is_own=lambda config: config.tokens == "own"),
    architecture_settings=("size", "tokens", "normalize"),
    lora_targets=(
        ("linear_q", "linear_v", "q_proj", "v_proj"),  # Conformer
        ("q_proj", "v_proj"),  # Transformer
        ("attention.encoded", "attention.state", "decoder.projection"),  # CRDNN
    ),
    takes="tokens",
)
