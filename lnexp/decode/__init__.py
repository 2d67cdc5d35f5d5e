"""From a trained model to text and scores."""
