"""Kernels: every step of a descent on a canonical form in one call, for CPU and GPU."""
