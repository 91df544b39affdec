"""Questions that use what is known from elsewhere: margins, and a model of areas."""

from collections.abc import Mapping

import polars as pl

from veiltab.core.uncertainty import Population
from veiltab.estimates.derived import CalibratedEstimate
from veiltab.estimates.questions import Event, Questions
from veiltab.inference import calibration, small_areas
from veiltab.inference.calibration import Method
from veiltab.inference.margins import Errors, Margins


class MarginQuestions(Questions):
    """Calibration to known margins, and estimates of small areas."""

    def calibrate(
        self,
        margins: Margins,
        method: Method = "greg",
        *,
        errors: Errors | None = None,
        population: Population = "finite",
    ) -> CalibratedEstimate:
        """Return an estimate that agrees with margins that are known from elsewhere.

        ``margins`` maps an attribute, or a tuple of attributes, to its shares or counts: a mapping
        of categories (nested, or with tuples as keys, for several attributes), or a polars frame.
        ``errors`` has standard errors of a margin in the same form, or their covariance matrix;
        margins without errors are exact.  The margins describe the ``population``: the respondents
        themselves, or with "super" the larger population that they were drawn from.

        "greg" (generalised regression) has the least error, and allows for errors of margins.
        "rake" multiplies the shares by factors of categories; it keeps them positive, and needs
        somebody in every category that is not known to be empty.
        """
        return CalibratedEstimate(calibration.calibrate(self, margins, method, errors, population))

    def small_areas(
        self,
        event: Event,
        area: str,
        covariates: Mapping[str, Mapping[str, float]] | pl.DataFrame | None = None,
        *,
        level: float = 0.95,
        population: Population = "super",
    ) -> pl.DataFrame:
        """Estimate the share of a condition in each area, with strength from all areas.

        The model of Fay and Herriot: the true shares of the areas vary around a mean, or around a
        linear function of ``covariates`` (a number per area under each name, or a frame), with the
        same variance.  The answer has a row per area: ``direct`` is P(event | area) alone,
        ``model`` its mixture with the model, ``weight`` the part of the direct estimate in it.
        Intervals hold on average over areas, not in each of them.
        """
        return small_areas.small_areas(
            self._question(level, population), self._condition(event), area, covariates
        )
