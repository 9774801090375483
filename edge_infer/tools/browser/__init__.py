"""A real headless Chromium that runs bundles for `verify` and `bench` (extra `browser`)."""
