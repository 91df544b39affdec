"""Files of counts: what is read, and that whatever is wrong is named in one line."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veiltab.core.schema import CountTable
from veiltab.data.counts import read_counts
from veiltab.errors import CountsError

GOOD = "sex,smokes,count\nmale,yes,10\nmale,no,20\nfemale,yes,30\nfemale,no,40\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Name a file that is not there yet."""
    return tmp_path / "table.csv"


def read(file: Path, content: str | bytes) -> CountTable:
    """Write the content as it is, and read it as counts."""
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_counts(file)


def refusal(file: Path) -> CountsError:
    """Return the error for a file, which must be one line with the file's name, and a hint."""
    with pytest.raises(CountsError) as caught:
        read_counts(file)
    message, hint = caught.value.message, caught.value.hint
    assert str(file) in message
    assert len(message.splitlines()) == 1
    assert len(hint.splitlines()) == 1
    return caught.value


def test_a_table_in_the_order_of_first_appearance(file: Path) -> None:
    """Categories are numbered as they appear, the first attribute varying slowest."""
    table = read(file, GOOD)
    assert table.schema.names == ("sex", "smokes")
    assert [a.categories for a in table.schema.attributes] == [("male", "female"), ("yes", "no")]
    assert table.counts.tolist() == [10, 20, 30, 40]
    assert table.counts.dtype == "int64"


def test_rows_may_stand_in_any_order(file: Path) -> None:
    """Each count goes to the cell that its row names, not to the next one."""
    table = read(file, "a,b,count\nx,u,1\ny,v,4\ny,u,3\nx,v,2\n")
    assert table.counts.tolist() == [1, 2, 3, 4]


def test_the_count_column_may_stand_anywhere(file: Path) -> None:
    """It is found by its name; the attributes keep their order."""
    table = read(file, "b,count,a\nu,1,x\nu,2,y\n")
    assert table.schema.names == ("b", "a")
    assert table.counts.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("content", "name", "categories"),
    [
        ("größe,count\nklein,1\ngroß,2\n", "größe", ("klein", "groß")),
        ("性別,count\n男,1\n女,2\n", "性別", ("男", "女")),
        (" hours / week ,count\n<40,1\n>=40,2\n", " hours / week ", ("<40", ">=40")),
        ('"a, b",count\n"x, ""y""",1\nz,2\n', "a, b", ('x, "y"', "z")),
        ("a_duplicated_0,count\n1,1\n01,2\n", "a_duplicated_0", ("1", "01")),
        ("#,count\nNA,1\nnull,2\n", "#", ("NA", "null")),
        ('a,count\nx," 1 "\ny,0002\n', "a", ("x", "y")),
        ("\ufeffa,count\nx,1\ny,2\n", "a", ("x", "y")),
        ("a,count\r\nx,1\r\ny,2\r\n", "a", ("x", "y")),
        ("a,count\nx,1\ny,2", "a", ("x", "y")),
    ],
)
def test_odd_but_good_files(
    file: Path, content: str, name: str, categories: tuple[str, ...]
) -> None:
    """Any script, quotes and commas, a byte order mark, Windows line ends: text stays as it is."""
    table = read(file, content)
    assert table.schema.names == (name,)
    assert table.schema.attributes[0].categories == categories
    assert table.counts.tolist() == [1, 2]


@pytest.mark.parametrize("name", ["[x].csv", "*.csv", "a b;c.csv", "naïve.csv"])
def test_a_file_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    """Brackets and stars in a name mean themselves, whatever other files there are."""
    (tmp_path / "x.csv").write_text("not,this\n")
    assert read(tmp_path / name, GOOD).population_size == 100


def test_a_file_name_may_be_any_bytes(tmp_path: Path) -> None:
    """Systems allow names that are no UTF-8; such a file is read like any other."""
    assert read(tmp_path / os.fsdecode(b"caf\xe9.csv"), GOOD).population_size == 100


def test_many_cells(file: Path) -> None:
    """A hundred thousand rows, backwards, find their cells."""
    rows = [f"{i},{j},{1000 * i + j}" for i in range(100) for j in range(1000)]
    table = read(file, "\n".join(["i,j,count", rows[0], *reversed(rows[1:])]))
    assert table.schema.sizes == (100, 1000)
    order = [0, *range(99, 0, -1)]
    assert table.counts.reshape(100, 1000)[:, 0].tolist() == [1000 * i for i in order]


@pytest.mark.parametrize(
    ("content", "offence"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("\ufeff", "is empty"),
        ("a,count\n", "has a header but no rows"),
        ("a,b\nx,1\n", "needs a column 'count'"),
        ("a,Count\nx,1\n", "it has 'a', 'Count'"),
        ("a;count\nx;1\n", "it has 'a;count'"),
        ("count\n1\n2\n", "at least one attribute"),
        ("a,a,count\nx,y,1\n", "two columns of the same name"),
        ("a,count,count\nx,1,1\n", "two columns of the same name"),
        (",,count\nx,y,1\n", "two columns of the same name"),
        (",count\nx,1\n", "an attribute name is empty"),
        ('"a\nb",count\nx,1\n', "control character"),
        ("a,count\nx,1\ny,-2\n", "a negative count in 1 row(s), first in line 3"),
        ("a,count\nx,-0.5\ny,2\n", "a negative count in 1 row(s), first in line 2"),
        ("a,count\nx,1.5\ny,2.0\n", "a fractional count in 2 row(s), first in line 2"),
        ("a,count\nx,1\ny,.5\n", "a fractional count in 1 row(s), first in line 3"),
        ("a,count\nx,1\ny,\n", "no count in 1 row(s), first in line 3"),
        ("a,count\nx,1\ny,  \n", "no count in 1 row(s), first in line 3"),
        ("a,count\nx,many\ny,1\n", "not a whole number in 1 row(s), first in line 2"),
        ('a,count\nx,"1,000"\ny,1\n', "not a whole number"),
        ("a,count\nx,1e3\ny,1\n", "not a whole number"),
        ("a,count\nx,nan\ny,inf\n", "not a whole number in 2 row(s)"),
        ("a,count\nx,١\ny,1\n", "not a whole number"),
        ("a,count\nx,1\ny,9999999999999999999\n", "more than 18 digits in 1 row(s), first in line"),
        (f"a,count\nx,{'9' * 5000}\ny,1\n", "more than 18 digits"),
        ("a,count\nx,9007199254740992\ny,1\n", "add up to 9,007,199,254,740,993"),
        ("a,b,count\nx,u,1\n,v,2\n", "no value for 'a' in 1 row(s), first in line 3"),
        ("a,count\nx,1\n\ny,2\n", "no value for 'a' in 1 row(s), first in line 3"),
        ('a,count\nx,1\n"",2\n', "a category of 'a' is empty"),
        ("a,count\nx\0,1\ny,1\n", "control character"),
        ("a,count\nx,1\ny,2\nx,3\n", "lists the cell x more than once"),
        ("a,b,count\nx,u,1\nx,v,2\ny,v,2\n", "lacks 1 of 4 cells, such as y / u"),
        ("a,count\nx,0\ny,0\n", "is zero"),
        ("a,b,count\nx,u,1\nx\n", "no value for 'b' in 1 row(s), first in line 3"),
        ("a,count\nx,1\ny,2,3\n", "more fields"),
        ('a,count\n"x,1\ny,2\n', "is not a CSV file in UTF-8"),
        ("a,count\nzähler,1\n".encode("latin-1"), "is not a CSV file in UTF-8"),
        ("zähler,count\nx,1\n".encode("latin-1"), "is not a CSV file in UTF-8"),
        ("a,count\nx,1\n".encode("utf-16"), "is not a CSV file in UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is not a CSV file in UTF-8"),
    ],
)
def test_bad_files_are_refused(file: Path, content: str | bytes, offence: str) -> None:
    """One line says which file, what is wrong with it and where."""
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    assert offence in refusal(file).message


def test_totals_beyond_64_bits_do_not_wrap_around(file: Path) -> None:
    """Twenty counts that fit one by one but not together are refused, with their true sum."""
    rows = [f"{row},{10**18 - 1}" for row in range(20)]
    file.write_text("\n".join(["a,count", *rows]))
    assert f"{20 * (10**18 - 1):,}" in refusal(file).message


def test_the_largest_population_is_read(file: Path) -> None:
    """2^53 respondents, the documented limit, and not one more."""
    assert read(file, f"a,count\nx,{2**53 - 1}\ny,1\n").population_size == 2**53


def test_too_many_cells_are_refused_before_they_are_built(file: Path) -> None:
    """Four thousand rows of identifiers would make 16 million cells."""
    file.write_text("\n".join(["a,b,count", *(f"{row},{row},1" for row in range(4000))]))
    assert "make 16,000,000 cells" in refusal(file).message


def test_too_many_categories_are_refused(file: Path) -> None:
    """A column of identifiers is no attribute."""
    file.write_text("\n".join(["person,count", *(f"{row},1" for row in range(65_536))]))
    assert "attribute 'person' has 65,536 categories" in refusal(file).message


def test_a_missing_file_is_refused(file: Path) -> None:
    """The hint is about the path, not about the format."""
    error = refusal(file)
    assert error.message == f"there is no file {file}"
    assert error.hint == "check the path"


def test_a_folder_is_refused(file: Path) -> None:
    """It is not read as the sum of its files."""
    file.write_text(GOOD)
    assert refusal(file.parent).message == f"{file.parent} cannot be read: Is a directory"


def test_a_path_below_a_file_is_refused(file: Path) -> None:
    """What the system says of it is passed on."""
    file.write_text(GOOD)
    assert "cannot be read: Not a directory" in refusal(file / "table.csv").message


@pytest.mark.parametrize("start", ["x^", "x^2"])
def test_text_that_begins_like_a_zlib_stream_is_read(file: Path, start: str) -> None:
    """Polars would take it for one."""
    file.write_text(f"{start},count\n1,2\n")
    assert read_counts(file).schema.names == (start,)


@pytest.mark.parametrize("start", [b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"x\x9c", b"\xe9"])
def test_names_that_are_not_utf_8_are_refused(file: Path, start: bytes) -> None:
    """Also those that begin like a compressed file."""
    file.write_bytes(start + b",count\n1,2\n")
    assert f"{file} is not a CSV file in UTF-8: " in refusal(file).message


@pytest.mark.slow
@given(st.binary(max_size=60) | st.text("a,\"\n\r 10-.é'", max_size=40).map(str.encode))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(file: Path, content: bytes) -> None:
    """No file ends in anything but a table or a one-line error with a hint."""
    for data in (content, b"a,count\n" + content, b"x,count\nx,1\n" + content):
        file.write_bytes(data)
        try:
            table = read_counts(file)
        except CountsError:
            refusal(file)
        else:
            assert table.counts.size == table.schema.domain_size
            assert table.counts.min() >= 0
            assert table.population_size >= 1
