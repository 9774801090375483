"""A signed store hosted by the server: its files, news of what is published, and what devices report."""
