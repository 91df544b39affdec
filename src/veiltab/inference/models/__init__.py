"""Regression models of the cells of a release, fitted by unbiased estimating equations."""
