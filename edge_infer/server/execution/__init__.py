"""Execution: models that are loaded, measured and run in worker threads, apart from the event loop."""
