"""Classifiers in the manner of scikit-learn, and what they are made of."""
