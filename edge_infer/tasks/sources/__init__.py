"""Where the definition of a pipeline comes from: what others wrote into a model or beside it."""
