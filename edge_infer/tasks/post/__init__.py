"""Steps after the model: from its outputs to an answer."""
