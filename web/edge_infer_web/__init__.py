"""The installed browser half."""
