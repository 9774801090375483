"""The bundle: a folder or zip with a manifest, model files, golden examples and measured quality."""
