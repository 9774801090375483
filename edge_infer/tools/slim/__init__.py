"""Folders with one model, its engine and the runtime, for images and read-only devices."""
