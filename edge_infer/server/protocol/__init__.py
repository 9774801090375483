"""Protocol: the language of requests, the Open Inference Protocol (v2) in JSON and in binary tensors."""
