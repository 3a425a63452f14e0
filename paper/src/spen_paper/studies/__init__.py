"""Studies beyond the paper's tables: where the energy pays, and how inference converges."""
