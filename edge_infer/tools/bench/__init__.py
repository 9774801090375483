"""How fast a bundle is on the engines here: each way in fresh processes, the page in a real Chromium."""
