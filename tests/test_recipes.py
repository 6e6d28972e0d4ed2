from pathlib import Path

import pytest

from attune import recipe as recipes

SHIPPED = sorted((Path(recipes.__file__).parent / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_right_short_and_says_what_it_is(path):
    lines = path.read_text().splitlines()
    assert recipes.load(path).recipe.run == f"runs/{recipes.load(path).recipe.run.removeprefix('runs/')}"
    assert len(lines) <= 40 and lines[0].startswith("# ")


def test_the_recipes_folder_at_the_top_is_the_one_that_ships():
    top = Path(__file__).parents[1] / "recipes"
    assert [path.name for path in sorted(top.glob("*.yaml"))] == [path.name for path in SHIPPED]
