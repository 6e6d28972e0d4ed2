"""Submit a command to a Ray cluster as a job: upload its folder, follow its log, return its exit code."""

import asyncio
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attune.errors import ConfigError
from attune.launch.group import Outcome

# Never uploaded: data and runs, which must be on shared storage, and build outputs.
EXCLUDES = (
    *("runs/", ".git/", ".venv/", "build/", "dist/", "__pycache__/", ".mypy_cache/", ".ruff_cache/", ".pytest_cache/"),
    *("*.safetensors", "*.wav", "*.flac", "*.mp3", "*.opus", "*.ogg", "*.tar", "*.tar.gz", "*.zip"),
)
INCLUDED, LOCAL = ("-r", "--requirement"), ("-r", "--requirement", "-c", "--constraint", "-e", "--editable")
MOST_INCLUDES = 10  # of files that include one another
_COMMENT = re.compile(r"(^|\s)#.*$")
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True, slots=True)
class Job:
    """A command, the folder it runs in, and the variables and packages it needs on the cluster."""

    words: Sequence[str]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()  # lines of a requirements file: packages, and options of pip
    excludes: Sequence[str] = ()


def submit(job: Job, address: str, show: Callable[[str], None]) -> Outcome:
    """Run a job to its end, streaming its log."""
    client = _connect(address)
    number = client.submit_job(entrypoint=shlex.join(job.words), runtime_env=runtime_environment(job))
    show(f"job {number} at {address}\n")
    asyncio.run(_follow(client, number, show))
    while client.get_job_status(number) not in ENDED:
        time.sleep(0.5)  # the log may end before the job does
    return _outcome(client.get_job_info(number))


def runtime_environment(job: Job) -> dict[str, Any]:
    """What Ray prepares on every node before the job's command runs there."""
    environment: dict[str, Any] = {"working_dir": str(job.folder), "excludes": [*EXCLUDES, *job.excludes]}
    environment |= {"env_vars": dict(job.variables)} if job.variables else {}
    return environment | ({"pip": list(job.packages)} if job.packages else {})


def read_requirements(path: Path, depth: int = 0) -> list[str]:
    """The lines of a requirements file, with those of the files it includes; the cluster has none of these files."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--requirements: cannot read {path}: {error}. Name a text file of packages.") from error
    lines: list[str] = []
    for line in filter(None, (_COMMENT.sub("", each).strip() for each in text.replace("\\\n", " ").split("\n"))):
        option, _, value = line.partition("=" if line.startswith("--") and "=" in line.split()[0] else " ")
        if option in INCLUDED and "://" not in value and depth < MOST_INCLUDES:
            lines += read_requirements(path.parent / value.strip(), depth + 1)
        elif option in LOCAL and "://" not in value:
            raise ConfigError(
                f"--requirements: {path} has {line!r}, a file that the cluster does not have. Give its URL, or list "
                "the packages instead."
            )
        else:
            lines.append(line)
    return lines


async def _follow(client: Any, number: str, show: Callable[[str], None]) -> None:
    async for text in client.tail_job_logs(number):
        show(text)


def _outcome(info: Any) -> Outcome:
    """The command's own exit code; `ray job submit` always returns 1."""
    if info.status == "SUCCEEDED":
        return Outcome(0)
    code = info.driver_exit_code
    return Outcome(code if code in (2, 75) else 1, f"The job has status {info.status}: {info.message or ''}".strip())


def _connect(address: str) -> Any:
    try:
        from ray.job_submission import JobSubmissionClient
    except ModuleNotFoundError as error:
        raise ConfigError('Ray is not installed. Run: pip install "attune-speech[ray]"') from error
    try:
        return JobSubmissionClient(address)
    except (ConnectionError, RuntimeError) as error:
        raise ConfigError(
            f"Cannot reach a Ray job server at {address}: {str(error).splitlines()[0]} "
            "Give the address of the dashboard, e.g. http://HEAD:8265."
        ) from error
