"""What CONTRIBUTING says about the packages is what the sources do."""

import ast
import re
from pathlib import Path

from tests.support.documents import ROOT, section

PAGE = ROOT / "CONTRIBUTING.md"
SOURCES = ROOT / "src" / "veiltab"


def importers() -> dict[str, set[str]]:
    """Return for each package and module below ``veiltab`` which others import it."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        importer = path.relative_to(SOURCES).parts[0].removesuffix(".py")
        for name in imported(path):
            package = name.split(".")[1]
            found.setdefault(package, set()).add(importer)
    return {package: names - {package, "__init__", "__main__"} for package, names in found.items()}


def imported(path: Path) -> list[str]:
    """Return the full names below ``veiltab`` that a file imports, also late."""
    names = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "veiltab":
            names += [f"veiltab.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return [name for name in names if name.startswith("veiltab.")]


def shown() -> dict[str, set[str]]:
    """Return the importers of each package as the table has them."""
    lines = re.findall(
        r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$",
        section(PAGE, "Find your way"),
        flags=re.MULTILINE,
    )
    return {package: set(re.findall(r"`(\w+)`", cell)) for package, cell in lines}


def test_every_module_that_is_named_is_there() -> None:
    """A record's way, above all, goes through files that exist."""
    named = set(re.findall(r"`veiltab((?:\.\w+)+)`", PAGE.read_text("utf-8")))
    assert len(named) > 20
    for name in named:
        place = SOURCES.joinpath(*name.strip(".").split("."))
        assert place.with_suffix(".py").exists() or (place / "__init__.py").exists(), name


def test_who_imports_whom() -> None:
    """Every package has a row; its last cell has its importers, unless it says so in words."""
    real, table = importers(), shown()
    assert set(table) == set(real)
    for package, names in table.items():
        if package not in {"core", "errors"}:
            assert names == real[package], package
