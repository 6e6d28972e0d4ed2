"""Checks that plug-ins keep their promises, and tiny real data to check them on.

For plug-in authors too.
"""

from attune.testing.corpus import check_corpus
from attune.testing.data import make_corpus, speak
from attune.testing.family import check_family
from attune.testing.problems import CheckFailed
from attune.testing.source import check_source
from attune.testing.task import check_task

__all__ = ["CheckFailed", "check_corpus", "check_family", "check_source", "check_task", "make_corpus", "speak"]
