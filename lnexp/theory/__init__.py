"""The paper's theory: each statement as a prediction, and as a measurement with an interval."""
