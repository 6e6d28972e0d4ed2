"""Guides that build a plug-in are followed to the letter: their blocks become files, and the files work."""

import re
import runpy
import sys
from pathlib import Path

from attune.cli import main
from attune.testing.data import make_corpus

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "add-a-task.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_the_task_of_the_guide_is_built_checked_and_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_tasks").mkdir()
    (tmp_path / "my_tasks" / "__init__.py").touch()
    for block in blocks("python"):
        name = block.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block)
    (tmp_path / "count-words.yaml").write_text(blocks("yml")[0])
    try:
        runpy.run_path(str(tmp_path / "check.py"))
        make_corpus(tmp_path / "train", utterances=24, seed=1)
        make_corpus(tmp_path / "dev", utterances=6, seed=2)
        for line in blocks("sh")[0].strip().splitlines():
            words = line.removeprefix("PYTHONPATH=. attune ").split()
            assert main([*words, "--workers=0", "--device=cpu"]) == 0
    finally:
        for name in [name for name in sys.modules if name.startswith("my_tasks")]:
            del sys.modules[name]
    assert "words_off" in capsys.readouterr().out
