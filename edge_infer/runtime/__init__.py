"""From a bundle to a result: `load`, options, choosing a variant and an engine, sessions."""
