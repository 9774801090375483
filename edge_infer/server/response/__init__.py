"""Response: what is sent back, what is remembered of it, and what is counted."""
