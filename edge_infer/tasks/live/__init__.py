"""Cameras and microphones: live pictures and sound for pipelines."""
