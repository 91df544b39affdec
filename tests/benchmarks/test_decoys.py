"""The benchmark of decoys compares the same number of rows with and without them."""

from benchmarks.decoys import Setting, decoy_ratios


def test_small_studies() -> None:
    """Every setting gives a row, whose reference has as many rows as respondents and decoys."""
    settings = (
        Setting(20_000, (6, 4), 0.0, "aligned"),
        Setting(20_000, (6, 4), 1e-6, "matched"),
    )
    for setting, row in zip(settings, decoy_ratios(settings), strict=True):
        assert row.name.startswith(setting.name)
        assert row.records > setting.population
        assert row.reference == f"{row.records:,} rows without"
        assert row.seconds > 0
        assert row.goal == "at most 1.1 times as long"
        assert row.met == (row.ratio >= 1 / 1.1)
