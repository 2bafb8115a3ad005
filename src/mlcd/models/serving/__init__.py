"""What the operators of a model, and other models, say about serving it."""
