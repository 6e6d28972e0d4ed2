"""attune fine-tunes and evaluates pretrained speech models.

import attune

run = attune.train("demo", run="runs/notebook", train={"steps": 200})   # or ("clips.csv", model="hf://…")
model = attune.load(run.folder)
print(model.transcribe("hello.wav"), attune.evaluate(run.folder))
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attune.api import Recognizer, evaluate, load, load_audio, load_upstream, new, score, train

__all__ = ["Recognizer", "evaluate", "load", "load_audio", "load_upstream", "new", "score", "train"]


def __getattr__(name: str) -> Any:
    """Load the Python face when it is first used, so that `import attune` and `attune --help` are quick."""
    if name not in __all__:
        raise AttributeError(f"module 'attune' has no attribute {name!r}")
    from attune import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """What the package offers, for completion; nothing is loaded for it."""
    return sorted([*globals(), *__all__])
