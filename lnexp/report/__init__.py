"""Tables and figures from run directories; imports no torch."""
