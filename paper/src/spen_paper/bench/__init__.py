"""``spen bench``: what inference costs, as ratios that are taken in one process."""
