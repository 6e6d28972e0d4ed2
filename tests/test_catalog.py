"""Plug-ins of other packages: found by their entry points, and not looked for again and again."""

import importlib.metadata
import sys

import pytest

from attune import catalog
from attune.cli import main
from attune.errors import ConfigError


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with a normalizer."""
    (tmp_path / "loud.py").write_text('"""Louder."""\n\nNORMALIZER = str.upper\n')
    about = tmp_path / "loud-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[attune.text.normalizers]\nshouted = loud:NORMALIZER\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("loud", None)


def test_a_package_that_is_installed_brings_its_plug_ins(package, capsys):
    assert catalog.find(catalog.NORMALIZERS, "shouted")("hush") == "HUSH"
    assert "shouted" in catalog.names(catalog.NORMALIZERS)
    assert "shouted" not in catalog.names(catalog.TASKS)
    assert main(["list", "normalizers"]) == 0
    assert "Louder." in capsys.readouterr().out


def test_without_it_they_are_unknown():
    with pytest.raises(ConfigError, match="Unknown normalizer 'shouted'"):
        catalog.find(catalog.NORMALIZERS, "shouted")


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A package of somebody's own whose modules are not plug-ins yet."""
    (tmp_path / "own_tasks").mkdir()
    (tmp_path / "own_tasks/__init__.py").touch()
    (tmp_path / "own_tasks/empty.py").touch()
    (tmp_path / "own_tasks/broken.py").write_text("import math\nTASK = math.taus\n")
    (tmp_path / "own_tasks/bare.py").write_text("class TASK:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith("own_tasks")]:
        del sys.modules[name]


def test_a_mistake_within_a_plug_in_is_not_taken_for_a_missing_one(modules):
    with pytest.raises(ConfigError, match=r"Module 'own_tasks.empty' does not export TASK."):
        catalog.find(catalog.TASKS, "own_tasks.empty")
    with pytest.raises(AttributeError, match="taus"):
        catalog.find(catalog.TASKS, "own_tasks.broken")


@pytest.mark.parametrize("name", ["own_tasks.bare", "own_tasks/bare.py"])
def test_a_task_without_settings_is_named_with_its_key(modules, name, capsys):
    assert main(["check", "example", f"task.name={name}"]) == 2
    assert "task.name: its settings are missing: a frozen dataclass, Config of a task" in capsys.readouterr().err


def test_the_name_of_a_file_without_its_path_is_answered_with_the_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "count_words.py").touch()
    with pytest.raises(
        ConfigError, match=r"Unknown task 'count_words'; for the file of that name, write ./count_words"
    ):
        catalog.find(catalog.TASKS, "count_words")


@pytest.mark.parametrize("name", ["count_words", "my_tasks.count_words", "./count_words.py", "/my/count_words.py"])
def test_a_plug_in_is_called_as_its_file(name):
    assert catalog.own_name(name) == "count_words"


def test_all_packages_are_looked_through_once_for_a_kind(package, monkeypatch):
    looks = []
    scan = importlib.metadata.entry_points
    monkeypatch.setattr(catalog, "entry_points", lambda **only: looks.append(only) or scan(**only))
    for _ in range(5):
        catalog.find(catalog.NORMALIZERS, "shouted")
        catalog.find(catalog.TASKS, "transcribe")
        catalog.names(catalog.FAMILIES)
    assert len(looks) == 3
