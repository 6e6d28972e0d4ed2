"""A family with one setting."""

from dataclasses import dataclass

from attune.contracts import Family, TaskModel


@dataclass(frozen=True)
class Config:
    width: int = 8


def build(config, task) -> TaskModel:
    raise NotImplementedError


FAMILY = Family(config=Config, build=build)
