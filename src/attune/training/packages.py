"""Packages of extras, imported when a recipe needs them."""

import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from attune.errors import ConfigError


def import_optional(name: str, if_missing: str) -> ModuleType:
    """The package, or a ConfigError that tells how to install it."""
    with quiet():
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ConfigError(if_missing) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the warnings of other packages from the user, who cannot act on them; peft and bitsandbytes have many."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
