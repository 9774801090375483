"""What is wrong here, and what to type: checks of this machine, of its GPU and of a live server."""
