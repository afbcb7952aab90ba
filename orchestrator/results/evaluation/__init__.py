"""Results of the training: accuracy, privacy, and the clients of a population."""
