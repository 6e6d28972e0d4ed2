"""attune fine-tunes and evaluates pretrained speech models.

import attune

run = attune.train("recipes/demo.yaml", run="runs/notebook", train={"steps": 200})
model = attune.load(run.folder)
print(model.transcribe("hello.wav"), attune.evaluate(run.folder).scores.values["wer"])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attune.api import Recognizer, evaluate, load, load_audio, load_upstream, score, train

__all__ = ["Recognizer", "evaluate", "load", "load_audio", "load_upstream", "score", "train"]


def __getattr__(name: str) -> Any:
    """Load the Python face when it is first used, so that `import attune` and `attune --help` are quick."""
    if name not in __all__:
        raise AttributeError(f"module 'attune' has no attribute {name!r}")
    from attune import api

    return getattr(api, name)
