"""Steps of sound: from a file or samples to a tensor."""
