"""Errors a user can act on. Each carries its whole message: what happened, what was expected, what to do.

AttuneError              an error that the user can fix; printed without traceback, exit 2
├── ConfigError          a recipe, an override or a name in one of them
├── DataError            a manifest, an audio file, a prediction file
│   └── TooLong          an utterance with more audio or text than the model's limit
├── SourceError          a download or upload that failed, or a path or URL that does not exist
├── CheckpointError      a run directory or a checkpoint
├── ModelError           weights or a model folder that do not match
├── TrainingError        training cannot continue (non-finite losses, out of memory)
├── ReaderLost           a loader worker was killed; exit 1
├── RankLost             another rank exited, and has its own message; exit 1
└── Preempted            stopped by a signal: checkpoint saved, exit 75
"""

import errno

from attune.secrets import without_secrets

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class AttuneError(Exception):
    """An error with its remedy; the message is all that the user sees."""

    exit_code = 2

    def __str__(self) -> str:
        """The message with credentials removed from its URLs."""
        return without_secrets(super().__str__())


class ConfigError(AttuneError):
    """A recipe, an override, or a name in one of them."""


class DataError(AttuneError):
    """A manifest, an audio file or a prediction file."""


class TooLong(DataError):
    """An utterance with more audio or text than the model's limit."""


class SourceError(AttuneError):
    """A download or upload that failed, or a path or URL that does not exist."""


class CheckpointError(AttuneError):
    """A run directory or a checkpoint."""


class ModelError(AttuneError):
    """Weights or a model folder that do not match."""


class TrainingError(AttuneError):
    """Training cannot continue."""

    exit_code = 1


class ReaderLost(AttuneError):
    """A loader worker was killed."""

    exit_code = 1


class RankLost(AttuneError):
    """Another rank exited before this one; of the remaining ranks, `is_reporter` prints it (None: the first)."""

    exit_code = 1

    def __init__(self, message: str, is_reporter: bool | None = None) -> None:
        super().__init__(message)
        self.is_reporter = is_reporter


class Preempted(AttuneError):
    """The run was stopped by a signal; it saved a checkpoint, and the same command resumes it."""

    exit_code = 75
