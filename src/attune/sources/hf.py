"""The Hugging Face Hub: `hf://org/name[@revision][/file]`, and `hf://datasets/org/name…` for data."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from attune.errors import SourceError
from attune.secrets import without_secrets
from attune.sources import Choose, Source
from attune.sources._addresses import HubAddress, hub_endpoint, read_hub
from attune.sources._cache import Cache, Entry, Watch, unwatched
from attune.sources._fetch import ListFiles, Listing, RemoteFile, fetch
from attune.sources._http import WebFile, web_ranges
from attune.sources._hub_api import HubFile, HubQuestion, hub_advice, hub_credentials
from attune.sources._responses import seconds_until
from attune.sources._retry import RANGE_READS, NotModified, Retries, RetryableError, RetryPolicy, is_transient, repeated
from attune.sources._verify import Hashes

if TYPE_CHECKING:
    from huggingface_hub import HfApi

# The same weights again, for other programs. attune reads safetensors, or else PyTorch's.
_OTHERS = ("*.h5", "*.msgpack", "*.ot", "*.onnx", "*.onnx_data", "*.tflite", "*.gguf", "*.mlmodel", "*.mlpackage/*")
_PICKLED = ("*.bin", "*.bin.index.json", "*.pt", "*.pth", "*.ckpt")
_REPLACED = ("task", "assets", "training", "predictions")  # files of an earlier push are no part of this model
LOOK_SECONDS = 2.0
NOT_PUSHED = "Nothing was uploaded. Check the network and HF_ENDPOINT, and push again."


def find(address: str, cache: Cache) -> Path:
    """A repository as a folder, or one file or folder of it."""
    hub = read_hub(address)
    list_files = lambda known, locked: _list_files(address, hub, cache.retry, known, locked)  # noqa: E731
    return fetch(address, list_files, cache, hub.is_fixed)


def push(folder: Path, address: str, message: str, watch: Watch = unwatched) -> str:
    """Commit all files of a folder at once, to a repository that is created if there is none.

    The Hub's library shows its own bars.
    """
    hub = read_hub(address)
    if hub.path or hub.is_fixed:
        raise SourceError(f"Cannot push to {address}. Expected hf://ORG/NAME or hf://ORG/NAME@BRANCH.")
    api = _api()

    def upload() -> str:
        with _translated_errors(address):
            repo = api.create_repo(hub.repo, repo_type=hub.kind, exist_ok=True)
            api.upload_folder(
                repo_id=repo.repo_id,
                repo_type=hub.kind,
                folder_path=folder,
                commit_message=message,
                revision=hub.revision,
                delete_patterns=[f"{part}/*" for part in _REPLACED],
            )
            return str(repo)

    return repeated(upload, Retries(address, RetryPolicy(), advice=NOT_PUSHED, failed="Upload to {address} failed"))


def beside(address: str, names: Sequence[str], cache: Cache) -> ListFiles:
    """Files in the same folder of a repository."""
    hub = read_hub(address)
    above = PurePosixPath(hub.path).parent.as_posix()
    folder = replace(hub, path="" if above == "." else above)
    return lambda known, locked: _list_files(address, folder, cache.retry, known, locked, names)


def choosing(address: str, choose: Choose, cache: Cache) -> ListFiles:
    """The files of a repository, or of a folder of it, that `choose` picks by their names."""
    hub = read_hub(address)
    return lambda known, locked: _list_files(address, hub, cache.retry, known, locked, choose)


def list_prefix(address: str) -> list[str]:
    """The addresses of the files whose paths begin as this one does."""
    hub = read_hub(address)
    _require_repo_name(address, hub)
    question = HubQuestion(address, RANGE_READS.timeout)
    files = question.files_of(hub, question.commit_of(hub, hub.revision))
    revision = f"@{hub.revision}" if hub.revision else ""
    root = f"hf://{'datasets/' if hub.kind == 'dataset' else ''}{hub.repo}{revision}"
    return sorted(f"{root}/{path}" for path in files if path.startswith(hub.path))


def is_model(name: str, cache: Cache) -> bool:
    """Whether the Hub answers within seconds that it has a model of this name; offline, whether the cache has it."""
    if cache.known(f"hf://{name}"):
        return True
    if cache.is_offline:
        return False
    return _exists(f"{hub_endpoint()}/api/models/{name}")


@functools.cache
def _exists(url: str) -> bool:
    """Whether there is something at an address; requested once, since ranks and stages ask the same again."""
    try:
        return HubQuestion(url, LOOK_SECONDS).exists(url)
    except (SourceError, RetryableError):
        return False


def _list_files(
    address: str,
    hub: HubAddress,
    policy: RetryPolicy,
    known: Entry | None,
    locked: Entry | None,
    wanted: Sequence[str] | Choose | None = None,
) -> Listing:
    _require_repo_name(address, hub)
    question = HubQuestion(address, policy.timeout)
    commit = question.commit_of(hub, locked.revision if locked else hub.revision)
    if known and known.revision == commit:
        raise NotModified
    files = question.files_of(hub, commit)
    if wanted is None:
        chosen, is_folder = _chosen(address, hub, files)
    else:
        names = wanted(_below(hub, files)) if callable(wanted) else wanted
        chosen, is_folder = _named(address, hub, files, names), True

    def remote(path: str) -> RemoteFile:
        web = _web_file(hub, path, commit, policy)
        entry = files[path]
        hashes = Hashes(sha256=entry.sha256) if entry.sha256 else Hashes(git=entry.git)
        return RemoteFile(web.open, entry.size, entry.sha256 or entry.git, hashes)

    return Listing({name: remote(path) for name, path in chosen.items()}, commit, is_folder)


def _require_repo_name(address: str, hub: HubAddress) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(hub.repo)
    except HFValidationError as error:
        raise SourceError(f"{address} is not a Hub address: {error}.") from error


def _file_at(address: str) -> WebFile:
    hub = read_hub(address)
    if not hub.path:
        raise SourceError(f"{address} names no file. Expected hf://datasets/ORG/NAME[@REVISION]/FILE.")
    return _web_file(hub, hub.path, hub.revision or "main", RANGE_READS)


def _web_file(hub: HubAddress, path: str, revision: str, policy: RetryPolicy) -> WebFile:
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(hub.repo, path, repo_type=hub.kind, revision=revision, endpoint=hub_endpoint())
    return WebFile(url, policy.timeout, hub_credentials(), is_fixed=True, advice=hub_advice(hub), is_verified=True)


def _chosen(address: str, hub: HubAddress, files: Mapping[str, HubFile]) -> tuple[dict[str, str], bool]:
    """What to fetch, as names with their paths in the repository; and whether that is a folder."""
    if hub.path in files:
        return {PurePosixPath(hub.path).name: hub.path}, False
    inside = f"{hub.path}/" if hub.path else ""
    below = {name: f"{inside}{name}" for name in _below(hub, files)}
    names = set(below) if hub.kind == "dataset" or hub.path else set(_needed(below))
    if not names:
        has = f"It has {', '.join(sorted(files)[:8])}" if files else "It is empty"
        raise SourceError(f"{address}: no {hub.path or 'file'} in this repository. {has}.")
    return {name: path for name, path in below.items() if name in names}, True


def _below(hub: HubAddress, files: Iterable[str]) -> list[str]:
    inside = f"{hub.path}/" if hub.path else ""
    return sorted(path.removeprefix(inside) for path in files if path.startswith(inside))


def _named(address: str, hub: HubAddress, files: Mapping[str, HubFile], names: Sequence[str]) -> dict[str, str]:
    paths = {name: str(PurePosixPath(hub.path) / name) for name in names}
    missing = [name for name, path in paths.items() if path not in files]
    if missing:
        raise SourceError(
            f"{address} names {missing[0]}, which the repository does not have ({len(missing)} missing in total)."
        )
    return paths


def _needed(names: Iterable[str]) -> Iterator[str]:
    """The files of a model without the same weights for other programs."""
    names = set(names)
    has_safe = any(name.endswith(".safetensors") and "/" not in name for name in names)
    is_whole = "model.safetensors" in names
    for name in names:
        is_other = any(fnmatch(name, pattern) for pattern in _OTHERS) or name == ".gitattributes"
        is_pickled = has_safe and any(fnmatch(name, pattern) for pattern in _PICKLED)
        is_variant = is_whole and fnmatch(name, "model.*.safetensors*")
        if not (is_other or is_pickled or is_variant):
            yield name


def _api() -> "HfApi":
    from huggingface_hub import HfApi

    return HfApi(endpoint=hub_endpoint())


@contextmanager
def _translated_errors(address: str) -> Iterator[None]:
    """The Hub client's errors as RetryableError or SourceError."""
    from huggingface_hub import errors

    try:
        yield
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        what = "revision" if isinstance(error, errors.RevisionNotFoundError) else "repository"
        advice = hub_advice(read_hub(address))
        raise SourceError(f"{address}: the Hub has no such {what}, or you have no access. {advice}") from error
    except errors.HFValidationError as error:
        raise SourceError(f"{address} is not a Hub address: {error}.") from error
    except errors.HfHubHTTPError as error:
        raise _refusal(address, error) from error
    except OSError as error:  # all that the client raises without a response
        raise _unreachable(error) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2"):
            raise
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> RetryableError:
    return RetryableError(f"cannot reach the Hub, {without_secrets(str(error)) or type(error).__name__}")


def _refusal(address: str, error: Any) -> Exception:
    if error.response is None:
        return RetryableError("the Hub did not answer")
    status = error.response.status_code
    if is_transient(status):
        after_seconds = seconds_until(error.response.headers.get("Retry-After"))
        return RetryableError(f"the Hub answered {status}", after_seconds=after_seconds)
    message = without_secrets(str(error.server_message or "")).strip()
    advice = hub_advice(read_hub(address))
    return SourceError(f"{address}: the Hub answered {status}{f' ({message})' if message else ''}. {advice}")


SOURCE = Source(find, push, beside, replace(web_ranges(_file_at), list_prefix=list_prefix), choosing)
