"""The face-swap recipe: models, losses, the update, previews, conversion, and what puts a training together."""
