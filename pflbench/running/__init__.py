"""Training from start to end: what is missing, where it trains, what happens on the way, and what comes of it."""
