"""Learning-rate schedules, and the optimisers that torch lacks."""
