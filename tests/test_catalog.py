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


def test_all_packages_are_looked_through_once_for_a_kind(package, monkeypatch):
    looks = []
    scan = importlib.metadata.entry_points
    monkeypatch.setattr(catalog, "entry_points", lambda **only: looks.append(only) or scan(**only))
    for _ in range(5):
        catalog.find(catalog.NORMALIZERS, "shouted")
        catalog.find(catalog.TASKS, "transcribe")
        catalog.names(catalog.FAMILIES)
    assert len(looks) == 3
