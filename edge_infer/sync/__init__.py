"""Weights that arrive signed, whole and cheaply: a store of static files, and the client that follows it.

A publisher writes a store (`publish`), which any web server can host; a device pulls from it (`client`). This room
knows no session: whoever pulls hands in a `trial`, which runs the new weights before they become the active ones.
docs/guide/sync.md specifies the files.
"""
