"""What a run used of everything its recipe names: written down once, and used again whenever the run goes on.

`sources.lock.json` says for every source which revision it was, and the size and SHA-256 of each file.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from attune import catalog
from attune.corpora import Corpus, CorpusSample, fetch_manifest
from attune.errors import AttuneError, CheckpointError, RankLost, SourceError
from attune.files import sha256
from attune.loading.data import TrainingSet
from attune.loading.pairs import require_fit
from attune.loading.place import PATIENT_SHARE
from attune.loading.pretrained import is_native, locate_model, open_pretrained
from attune.recipe import Recipe
from attune.run import Run
from attune.site import Site
from attune.sources import Cache, Entry, File, is_remote, locate, read_lock, shown, write_lock
from attune.training.checkpoint import INDEX
from attune.world import World


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source as a recipe names it, and under which key."""

    key: str
    source: str
    is_manifest: bool = False

    def bring(self, cache: Cache) -> Path:
        """Where it is on this machine; a manifest comes with its audio."""
        if self.is_manifest:
            return fetch_manifest(self.source, cache)
        return (locate_model if self.key == "model.weights" else locate)(self.source, cache)


def sources_of(recipe: Recipe, begins: bool = True) -> list[NamedSource]:
    """Everything that a recipe names; a run that goes on needs no first weights."""
    named = [
        NamedSource(f"data.{split}", source, is_manifest=True)
        for split in ("train", "dev", "test", "retained")
        for source in getattr(recipe.data, split)
    ]
    for kind in ("rooms", "noise"):
        part = getattr(recipe.augment, kind) if recipe.augment else None
        named += [NamedSource(f"augment.{kind}.folder", part.folder)] if part else []
    searches = {"decode": recipe.decode, "decode.final": recipe.decode.final}
    named += [NamedSource(f"{key}.lm", search.lm) for key, search in searches.items() if search and search.lm]
    if begins:
        family = catalog.find(catalog.FAMILIES, recipe.model.family)
        values = {name: getattr(recipe.model.config, name) for name in family.sources}
        named += [NamedSource(f"model.{name}", source) for name, source in values.items() if source is not None]
    return named


def gather_sources(recipe: Recipe, run: Run, site: Site, world: World, resumes: bool) -> Site:
    """Fetch all that the recipe names and keep to it: what this run was locked to, or what the first rank finds.

    Every rank asks, and a lock keeps that to one download on each node; ranks that wait for it wait for no collective,
    whose patience is short.
    """
    require_fit(recipe)  # before anything is fetched
    site = as_locked(run, site)
    if resumes:  # its sources have answered before
        retry = replace(site.cache.retry, patience=PATIENT_SHARE * site.timeout)
        site = replace(site, cache=replace(site.cache, retry=retry))
    named = sources_of(recipe, begins=not resumes)
    paths = _bring_together(named, site.cache, world)
    found: Mapping[str, Entry] = world.gather(dict(site.cache.used))[0]
    # A run that begins again, having saved nothing, is locked to this machine's files as they are now.
    if world.is_first and (not resumes or not run.lock.exists()):
        # Recordings to augment with are many, and no row depends on any one of them.
        local = {each.source: path for each, path in paths.items() if not each.key.startswith("augment.")}
        write_lock(run.lock, [*found.values(), *local_entries(local)])
    return replace(site, cache=site.cache.locked_to({**site.cache.locked, **found}))


def extend_lock(run: Run, located: Mapping[str, Path], site: Site) -> None:
    """Add to a run's lock what only the task knows of, such as the trial list that it is scored with."""
    remote = [site.cache.used[shown(source)] for source in located if is_remote(source)]
    found = {entry.source: entry for entry in (*remote, *local_entries(located))}
    write_lock(run.lock, {**found, **read_lock(run.lock)}.values())


def _bring_together(named: Iterable[NamedSource], cache: Cache, world: World) -> dict[NamedSource, Path]:
    """Every rank brings everything; what is wrong for all of them is reported once, by the first."""
    paths: dict[NamedSource, Path] = {}
    mistake: AttuneError | None = None
    try:
        paths.update((each, each.bring(cache)) for each in named)
    except AttuneError as error:
        mistake = error
    reported = list(dict.fromkeys(filter(None, world.gather(str(mistake) if mistake else None))))
    if not reported:
        return paths
    if not world.is_first:
        world.barrier()  # ends when the first rank does, after its message
        raise RankLost("\n".join(reported))
    raise mistake or SourceError("\n".join(reported))


def as_locked(run: Run, site: Site) -> Site:
    """The site where everything is what the run used."""
    if not run.lock.exists():
        return site
    return replace(site, cache=site.cache.locked_to(read_lock(run.lock)))


def local_entries(paths: Mapping[str, Path]) -> Iterator[Entry]:
    """What was used of this machine's own files."""
    for source, path in paths.items():
        if not is_remote(source):
            root = path if path.is_dir() else path.parent
            files = {str(file.relative_to(root)): File(sha256(file), file.stat().st_size) for file in _used(path)}
            yield Entry(source, "", files, path.is_dir())


def _used(path: Path) -> Iterable[Path]:
    """The files of a model that are read; of other folders, all that lie directly in them."""
    if not path.is_dir():
        return [path]
    if is_native(path):
        model = open_pretrained(path)
        parts = (model.folders.task, model.folders.assets)
        folders = [folder for folder in parts if folder.is_relative_to(path) and folder.is_dir()]
        inside = [file for folder in folders for file in sorted(folder.iterdir()) if file.is_file()]
        own = path / "recipe.yaml"  # a checkpoint has none: its run's goes on changing
        shards = sorted(model.weights.parent.glob("model-*.safetensors")) if model.weights.name == INDEX else []
        return [*([own] if own.is_file() else []), model.weights, *shards, *inside]
    return sorted(file for file in path.iterdir() if file.is_file())


def require_same_data(run: Run, data: TrainingSet, recordings: str) -> None:
    """Refuse to go on with other data than the run began with."""
    start = run.start()
    if start.recordings and start.recordings != recordings:
        raise CheckpointError(
            f"The recordings of augment have changed since {run.name} started. Restore them, or start a new run "
            "with model.weights set to this one."
        )
    known = {name: found for name, found in data.parts.items() if name in start.parts}
    changed = [name for name, found in known.items() if found != start.parts[name]]
    if changed or start.data != data.fingerprint:
        which = f" ({', '.join(changed[:3])}{' …' if changed[3:] else ''})" if changed else ""
        raise CheckpointError(
            f"The training data{which} has changed since {run.name} started, so its epochs would repeat some "
            "utterances and miss others. Restore it, or start a new run with model.weights set to this one."
        )


def contents_of_dev(dev: Corpus | CorpusSample | None) -> Mapping[str, str]:
    """A fingerprint of the content of each dev set."""
    whole = dev.whole if isinstance(dev, CorpusSample) else dev
    return whole.parts if whole else {}


def note_changed_dev(run: Run, dev: Corpus | CorpusSample | None) -> tuple[str, ...]:
    """What there is to say where a dev set is not the one that the run began with; dev sets may change."""
    then = run.start().dev
    changed = [name for name, found in contents_of_dev(dev).items() if then.get(name, found) != found]
    if not changed:
        return ()
    return (
        f"data.dev ({', '.join(changed)}) has changed since {run.name} started: scores before and after are of other "
        "utterances, and train.keep_best compares them.",
    )


@dataclass(frozen=True, slots=True)
class Fetched:
    """A source that is here now; without an entry it is this machine's own."""

    named: NamedSource
    path: Path
    entry: Entry | None


def fetch(recipe: Recipe, site: Site, locked: Mapping[str, Entry]) -> Iterator[Fetched]:
    """Bring everything that a recipe names, exactly as it was locked where it was."""
    cache = site.cache.locked_to(locked)
    for named in sources_of(recipe):
        if locked and is_remote(named.source) and shown(named.source) not in locked:
            raise SourceError(
                f"{named.key}: {shown(named.source)} is not in the lock. Use the lock of the same recipe."
            )
        path = named.bring(cache)
        if not is_remote(named.source) and named.source in locked:
            _require_unchanged(path, locked[named.source])
        yield Fetched(named, path, cache.used.get(shown(named.source)))


def _require_unchanged(path: Path, locked: Entry) -> None:
    (now,) = local_entries({locked.source: path})
    changed = [name for name, file in locked.files.items() if now.files.get(name) != file]
    if changed:
        raise SourceError(
            f"{locked.source} has changed since it was locked: {', '.join(changed[:3])} changed or was removed. "
            "Restore it, or fetch without --locked."
        )
