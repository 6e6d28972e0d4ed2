"""The notebook of the documentation runs offline, and shows what it should: bar, tables, report, transcript."""

import json
import os
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs/notebooks/first-hour.ipynb"


def shown(notebook) -> str:
    """Everything that the outputs of a notebook show."""
    parts = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            text = output.get("text", "")
            parts.append("".join(text))
            parts += ["".join(each) for each in output.get("data", {}).values()]
    return "\n".join(parts)


@pytest.mark.recipe
@pytest.mark.filterwarnings("default")  # of jupyter's own packages
def test_the_notebook_runs_and_shows_bar_table_report_and_transcript(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    paths = [str(NOTEBOOK.parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=500, resources=place, coalesce_streams=True).execute()
    text = shown(notebook)
    assert "training: 100%" in text and "best so far" in text
    assert text.count("<table>") == 2 and "dev.wer" in text
    assert '<iframe title="clips-model · attune report"' in text
    assert (tmp_path / "runs/clips-model/model/model.safetensors").is_file()


def test_the_saved_notebook_has_its_outputs_and_no_path_of_a_machine():
    text = shown(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    assert "training: 100%" in text and "<table>" in text
    assert '<iframe title="clips-model · attune report"' in text
    assert "/home/" not in text and "/work/" not in text and "/tmp/" not in text
