"""The built-in data set: the paper's Adult table, as joint counts.

UCI "Adult" (1994 census), the 45,222 of 48,842 records without a missing value, over nine
attributes in 768 cells.  The first four attributes are the paper's 24 cells; the other five are
ours, chosen so that the sums over the last attributes give the paper's other cardinalities.
"""

from importlib.resources import as_file, files

from veiltab.core.schema import CountTable
from veiltab.errors import ParameterError
from veiltab.sources.counts import read_counts

CARDINALITIES = (12, 24, 48, 96, 192, 384, 768)
"""The numbers of cells that the paper goes through."""


def adult_table(cells: int = 24) -> CountTable:
    """Return the Adult counts over the first attributes, as many as make ``cells`` cells."""
    if cells not in CARDINALITIES:
        raise ParameterError(
            f"the Adult table has no version with {cells} cells",
            hint=f"choose one of {', '.join(map(str, CARDINALITIES))}",
        )
    with as_file(files("veiltab.sources") / "adult_joint_768.csv") as path:
        whole = read_counts(path)
    names, product = [], 1
    for attribute in whole.schema.attributes:
        if product < cells:
            names.append(attribute.name)
            product *= attribute.size
    return whole.marginal(names)
