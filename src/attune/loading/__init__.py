"""From a recipe to a model and its data: pretrained weights, adapters, language models, manifests, locks."""
