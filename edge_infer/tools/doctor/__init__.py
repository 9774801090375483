"""Checks of this machine, its GPU and a live server; each finding names its remedy."""
