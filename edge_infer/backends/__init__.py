"""Engine adapters, one file each, one contract: `base.py`."""
