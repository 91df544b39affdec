"""A strict reader of our own pages: every element is closed, and where it should be."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "wbr"}


@dataclass
class Element:
    """An element with its attributes, its children and its own text."""

    name: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text in it and in all its children, in order."""
        return "".join(self.pieces)

    def every(self, name: str) -> list["Element"]:
        """Return all elements of a name below this one, in order."""
        found = [] if self.name != name else [self]
        return found + [each for child in self.children for each in child.every(name)]

    def all(self) -> list["Element"]:
        """Return this element and all below."""
        return [self, *(each for child in self.children for each in child.all())]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self.open = [self.root]
        self.declarations: list[str] = []

    def handle_decl(self, decl: str) -> None:
        self.declarations.append(decl)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag}: an attribute comes twice"
        found = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(found)
        if tag not in VOID:
            self.open.append(found)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.pieces.append(data)


def read_page(page: str) -> Element:
    """Read a page, and refuse one that is not well formed."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.declarations == ["doctype html"]
    assert reader.open == [reader.root], f"<{reader.open[-1].name}> is not closed"
    [whole] = reader.root.children
    assert whole.name == "html"
    return whole
