"""What is done to a model: one transformation for each file, `ModelProto` in, a new `ModelProto` out."""
