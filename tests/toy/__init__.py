"""A package of plug-ins from elsewhere: `toy.task` and `toy.family`, as another author would write them."""
