"""A device in service: its systemd unit, its drop folder for models, its health report."""
