"""Statistical inference from a release: shares, intervals, ratios, associations and tests.

The functions here work on :class:`veiltab.core.released.ReleasedCounts`; researchers call the
methods of :class:`veiltab.estimates.Estimate` instead.
"""
