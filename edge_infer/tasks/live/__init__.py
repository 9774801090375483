"""Cameras and microphones: pictures and sound as they come, for pipelines."""
