"""Exactly Whisper's EnglishTextNormalizer, to compare with published figures; needs `pip install whisper-normalizer`.

Only that package's spelling list is read, as data; nothing of it is run.
"""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from attune.errors import ConfigError
from attune.text.normalizers import _english_rules

_PACKAGE = "whisper_normalizer"


def normalize(text: str) -> str:
    """English text exactly as Whisper's normalizer has it."""
    return _english_rules.normalize(text, _published_spellings())


@cache
def _published_spellings() -> dict[str, str]:
    package = find_spec(_PACKAGE)
    if package is None or package.origin is None:
        raise ConfigError(
            "The normalizer `whisper_english` needs the spelling list of the package whisper-normalizer. "
            "Run `pip install whisper-normalizer`, or use the normalizer `english`."
        )
    spellings: dict[str, str] = json.loads((Path(package.origin).parent / "normalizers/english.json").read_bytes())
    return spellings


NORMALIZER = normalize
