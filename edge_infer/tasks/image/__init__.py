"""Steps of images: from a file or pixels to a tensor."""
