"""Print the tables of limits as they would be now: python -m tests.guards.show_work."""

import sys

from tests.guards import test_kernel_work, test_linkage_work, test_path_work
from tests.support.counting import Kernel, Work, between


def measured(kernel: Kernel) -> Work:
    """Return what a record, and a span, takes."""
    kernel.work(kernel.span)
    some, many = (kernel.work(number * kernel.span) for number in kernel.spans[1:])
    return between(kernel, some, many, 1)


def main() -> None:
    """Print a row for each kernel."""
    for module in (test_kernel_work, test_linkage_work, test_path_work):
        for name, kernel in module.KERNELS.items():
            sys.stdout.write(f'    "{name}": {measured(kernel)},\n')


if __name__ == "__main__":
    main()
