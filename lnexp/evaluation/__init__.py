"""`lnexp eval`: trained runs, scored, compared and put to use."""
