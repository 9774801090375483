"""A folder with one model and only what runs it: for images and read-only devices."""
