"""Errors a user can act on. Each carries its whole message: what happened, what was expected, what to do.

AttuneError              a user's mistake or a state of the world the user can mend; shown without traceback, exit 2
├── ConfigError          a recipe, an override or a name in one of them
├── DataError            a manifest, an audio file, a prediction file
│   └── TooLong          an utterance with more audio or text than the model has room for
├── SourceError          something that could not be fetched or found
├── CheckpointError      a run directory or a checkpoint
├── ModelError           weights or a model folder that do not fit
├── TrainingError        training cannot go on (non-finite losses, out of memory)
├── ReaderLost           a process that reads audio was killed; exit 1
├── RankLost             another rank ended, and has its own message; exit 1
└── Preempted            asked to stop: saved, exit 75
"""

from attune.secrets import without_secrets


class AttuneError(Exception):
    """A mistake with its remedy; the message is all the user sees."""

    exit_code = 2

    def __str__(self) -> str:
        """The message as it may be shown and logged, whatever address went into it."""
        return without_secrets(super().__str__())


class ConfigError(AttuneError):
    """A recipe, an override, or a name in one of them."""


class DataError(AttuneError):
    """A manifest, an audio file or a prediction file."""


class TooLong(DataError):
    """An utterance with more audio or text than the model has room for."""


class SourceError(AttuneError):
    """Something that could not be fetched or found."""


class CheckpointError(AttuneError):
    """A run directory or a checkpoint."""


class ModelError(AttuneError):
    """Weights or a model folder that do not fit."""


class TrainingError(AttuneError):
    """Training cannot go on."""

    exit_code = 1


class ReaderLost(AttuneError):
    """A process that reads audio was killed."""

    exit_code = 1


class RankLost(AttuneError):
    """Another rank ended before this one."""

    exit_code = 1


class Preempted(AttuneError):
    """The run was asked to stop; it saved and can be continued with the same command."""

    exit_code = 75
