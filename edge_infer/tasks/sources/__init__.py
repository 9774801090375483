"""The sources of a pipeline's definition: metadata in a model file, or files beside it."""
