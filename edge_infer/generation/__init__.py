"""Text generation: decoders on kernels of our own, samplers, chat templates and the slots of a server."""
