"""A package of plug-ins from elsewhere: `toy.task`, `toy.family`, `toy.depot`, as another author would write them."""
