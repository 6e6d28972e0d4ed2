"""Optional packages, imported when a recipe asks for what they do."""

import importlib
import logging
from types import ModuleType

from attune.errors import ConfigError


def import_optional(name: str, if_missing: str) -> ModuleType:
    """The package, or a ConfigError that tells how to install it."""
    # bitsandbytes, which peft imports where it is installed, warns of kernels that it lacks for 4-bit layers.
    noisy = logging.getLogger("bitsandbytes.backends.cpu.ops")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(if_missing) from error
    finally:
        noisy.setLevel(level)
