"""HTTP and WebSocket connections: sockets, limits, parsing and writing of bytes."""
