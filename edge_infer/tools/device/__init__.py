"""The life of a device: its service, a folder to drop models into, its health."""
