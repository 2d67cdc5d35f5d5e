"""The model: placements, attention, the encoder-decoder Transformer and its initialisation."""
