"""A real notebook: training shows a bar, and the run's report shows itself in the output."""

import os
from pathlib import Path

import pytest

from browser import browser
from tiny import write_recipe

CELLS = ["import attune", "run = attune.train({recipe!r})", "run.report()"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What the cells of a notebook show: their texts, and the HTML of the last one."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    folder = tmp_path_factory.mktemp("notebook")
    recipe = str(write_recipe(folder))
    cells = [nbformat.v4.new_code_cell(cell.format(recipe=recipe)) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    paths = [str(Path(__file__).parents[1] / "src"), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        place = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(notebook, timeout=300, resources=place, coalesce_streams=True).execute()
    shown = [each for cell in notebook.cells for each in cell.outputs]
    texts = "\n".join(each.get("text", "") for each in shown)
    return folder, texts, notebook.cells[-1].outputs[0]["data"]["text/html"]


@pytest.mark.recipe
@pytest.mark.filterwarnings("default")  # of jupyter's own packages
def test_training_in_a_notebook_shows_a_bar_and_where_the_report_is(outputs):
    folder, texts, _ = outputs
    assert "training: 100%" in texts and f"report: {folder / 'run/report.html'}" in texts


@pytest.mark.recipe
@pytest.mark.filterwarnings("default")
def test_the_report_is_alive_in_the_output_of_a_cell(outputs):
    folder, _, html = outputs
    assert html.startswith("<iframe")
    page = folder / "output.html"
    page.write_text(f"<!doctype html><title>cell</title><link rel=icon href='data:,'>{html}")
    with browser() as tab:
        tab.look()
        tab.open(f"file://{page}", "document.querySelector('iframe')")
        frame = tab.call("Page.getFrameTree")["frameTree"]["childFrames"][0]["frame"]["id"]
        world = tab.call("Page.createIsolatedWorld", frameId=frame)["executionContextId"]
        look = {"contextId": world, "returnByValue": True}
        tab.wait("true")
        for _ in range(200):
            rows = tab.call("Runtime.evaluate", expression="document.querySelectorAll('.row').length", **look)
            if rows["result"]["value"]:
                break
            tab.run("new Promise((done) => setTimeout(done, 25))")
        assert rows["result"]["value"] == 6 and tab.problems == []
