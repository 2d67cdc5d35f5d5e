"""What is learned: a task gives batches, a loss and an evaluation."""
