"""Another machine, reached by ssh: it gets a slim folder, answers and is timed, and keeps nothing."""
