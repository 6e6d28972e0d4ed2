"""Which family a model or checkpoint belongs to, and what to say when a recipe names another."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attune import catalog
from attune.errors import AttuneError, ModelError
from attune.loading.adapter import is_adapter
from attune.loading.pretrained import is_native, open_pretrained
from attune.recipe import Recipe
from attune.site import Site
from attune.sources import locate


def family_of(path: Path) -> str | None:
    """The family of a model of attune's, or the one that imports a checkpoint."""
    if is_native(path):
        return open_pretrained(path).recipe.model.family
    return next((name for name in catalog.names(catalog.FAMILIES) if recognizes(name, path)), None)


def recognizes(family: str, path: Path) -> bool:
    """Whether a family imports a checkpoint."""
    importer = catalog.find(catalog.FAMILIES, family).importer
    return importer is not None and importer.recognizes(path)


def companions(source: str, site: Site) -> tuple[str, ...]:
    """The other families that a folder has a model for, such as the language model of a recognizer."""
    path = locate(source, site.cache)
    if is_adapter(path) or is_native(path):
        return ()
    first = family_of(path)
    return tuple(name for name in catalog.names(catalog.FAMILIES) if name != first and recognizes(name, path))


@contextmanager
def naming_the_family(recipe: Recipe, theirs: str | None) -> Iterator[None]:
    """What goes wrong with a recipe's weights; if they look like another family's, that is probably why."""
    model = recipe.model
    try:
        yield
    except (AttuneError, OSError) as error:
        if theirs in (None, model.family):
            raise
        raise ModelError(
            f"{model.config.weights} cannot be loaded with model.family={model.family}: {error}\n"
            f"If it is a model of the family {theirs!r}, set model.family={theirs}."
        ) from error
