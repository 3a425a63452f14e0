"""What the command line calls: plain functions. Heavy imports happen inside them."""
