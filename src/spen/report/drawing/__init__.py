"""How a page shows what it says: HTML and SVG, written by hand."""
