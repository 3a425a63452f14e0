"""The paper's tables: what is in their rows, how it is trained, and how it is laid out."""
