"""The parties that a home knows: remembered at first, verified by people, refused if changed."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity, fingerprint
from veiltab.errors import (
    BlockedError,
    HomeError,
    InputError,
    KeyChangedError,
    MismatchError,
    ParameterError,
)
from veiltab.party.home import Home, identity_text
from veiltab.party.known.known import Standing
from veiltab.protocol.curator.agreement import public_identity
from veiltab.wire.contract import PublicIdentity


def someone(name: str) -> PublicIdentity:
    """Return a party with keys of its own."""
    return public_identity(PrivateIdentity.create(name, SystemEntropy()))


def digits(identity: PublicIdentity) -> str:
    """Return the fingerprint that a party would read out."""
    return fingerprint(identity.party_id)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return the home of a tax office that is registered with a server."""
    home = Home(tmp_path / "home")
    home.create("Tax office")
    home.pin_server("http://127.0.0.1", someone("Statistics bureau"))
    return home


def test_a_party_is_remembered_at_first_use(home: Home) -> None:
    """As not verified; meeting it again changes nothing."""
    hospital = someone("City hospital")
    assert home.known.standings([hospital, home.public]) == [Standing.NEW, Standing.YOU]
    assert not (home.path / "known.json").exists()
    home.known.remember([hospital, home.public])
    (known,) = home.known.parties()
    assert (known.name, known.identity, known.verified) == ("City hospital", hospital, None)
    assert home.known.standings([hospital]) == [Standing.UNVERIFIED]
    written = (home.path / "known.json").read_bytes()
    home.known.remember([hospital])
    assert (home.path / "known.json").read_bytes() == written
    assert (home.path / "known.json").stat().st_mode & 0o777 == 0o600


def test_looking_remembers_nobody(home: Home) -> None:
    """Else whoever proposes first would own a name; and strangers would fill the file."""
    home.known.check([someone("City hospital")])
    home.known.standings([someone("City hospital")])
    assert home.known.parties() == []


def test_a_known_name_with_another_key_is_refused(home: Home) -> None:
    """The error has both fingerprints, and says which was verified; nothing else changes."""
    hospital, impostor = someone("City hospital"), someone("City Hospital")
    home.known.verify(hospital, digits(hospital))
    assert home.known.standings([impostor]) == [Standing.CHANGED]
    with pytest.raises(KeyChangedError, match="THE KEY HAS CHANGED") as refused:
        home.known.remember([someone("Registry"), impostor])
    for words in (digits(hospital), digits(impostor), "(verified)", "'City Hospital'"):
        assert words in refused.value.message
    assert [known.name for known in home.known.parties()] == ["City hospital"]


@pytest.mark.parametrize(("name", "words"), [("Tax 0ffice", "your own"), ("statistics bureau", "")])
def test_own_names_and_the_servers_are_taken(home: Home, name: str, words: str) -> None:
    """They need not be in the file."""
    with pytest.raises(KeyChangedError, match=words or "your server"):
        home.known.remember([someone(name)])


def test_oneself_and_the_server_are_no_others(home: Home) -> None:
    """They are neither verified nor blocked."""
    assert home.server is not None
    for identity, words in ((home.public, "is you"), (home.server.identity, "is your server")):
        with pytest.raises(ParameterError, match=words):
            home.known.verify(identity, digits(identity))
        with pytest.raises(ParameterError, match=words):
            home.known.block(identity)
    assert home.known.parties() == []


def test_a_known_party_cannot_take_the_name_of_another(home: Home) -> None:
    """It may change its name, but not to one that is known; that would be as good as a forgery."""
    hospital, registry = someone("City hospital"), someone("Registry")
    home.known.remember([hospital, registry])
    home.known.remember([replace(registry, name="Registry of births")])
    with pytest.raises(KeyChangedError, match="THE KEY HAS CHANGED"):
        home.known.remember([replace(registry, name="CITY HOSPITAL")])


def test_only_the_right_digits_verify(home: Home, tmp_path: Path) -> None:
    """By an identity, its file or its name; grouped by anything."""
    hospital = someone("City hospital")
    file = tmp_path / "hospital.json"
    file.write_text(identity_text(hospital), "utf-8")
    with pytest.raises(MismatchError, match="has the fingerprint"):
        home.known.verify(file, digits(someone("Another")))
    with pytest.raises(ParameterError, match="is not a fingerprint"):
        home.known.verify(file, digits(hospital)[-5:])  # five digits are soon forged
    assert home.known.parties() == []
    home.known.remember([hospital])
    for party in (file, str(file), "City hospital", hospital.party_id.hex()[:8], hospital):
        for between in ("", "-", "."):
            known = home.known.verify(party, f" {digits(hospital).replace(' ', between)} ")
            assert known.verified is not None
    assert home.known.standings([hospital]) == [Standing.VERIFIED]


def test_two_honest_parties_of_one_name(home: Home) -> None:
    """The second is verified under a name of your own; both can then be in one contract."""
    paris, lyon = someone("City hospital"), someone("City hospital")
    home.known.verify(paris, digits(paris))
    with pytest.raises(KeyChangedError):
        home.known.verify(lyon, digits(lyon))
    with pytest.raises(KeyChangedError):
        home.known.verify(lyon, digits(lyon), name="city hospital")
    known = home.known.verify(lyon, digits(lyon), name="City hospital (Lyon)")
    assert (known.name, known.identity.name) == ("City hospital (Lyon)", "City hospital")
    home.known.remember([paris, lyon])
    assert home.known.find("City hospital").identity == paris
    assert home.known.find("City hospital (Lyon)").identity == lyon
    with pytest.raises(KeyChangedError):
        home.known.remember([someone("City hospital")])


def test_a_name_that_was_changed_here_stays_taken(home: Home) -> None:
    """Both the name that it has here and the one that it calls itself."""
    hospital = someone("City hospital")
    home.known.verify(hospital, digits(hospital), name="Our hospital")
    for name in ("City hospital", "Our hospital"):
        with pytest.raises(KeyChangedError):
            home.known.remember([someone(name)])


def test_a_party_with_a_new_key_is_forgotten_and_verified_anew(home: Home) -> None:
    """Then the old key, which may be in anybody's hands, is the one that is refused."""
    old, new = someone("City hospital"), someone("City hospital")
    home.known.verify(old, digits(old))
    assert home.known.forget("City hospital").identity == old
    home.known.verify(new, digits(new))
    with pytest.raises(KeyChangedError, match="THE KEY HAS CHANGED"):
        home.known.remember([old])


def test_a_blocked_party_is_refused(home: Home) -> None:
    """Until it is unblocked; it need not be known."""
    pushy = someone("Pushy research")
    home.known.block(pushy)
    assert home.known.standings([pushy]) == [Standing.BLOCKED]
    with pytest.raises(BlockedError, match="you have blocked 'Pushy research'"):
        home.known.remember([pushy])
    assert home.known.block(pushy) == home.known.find_blocked("Pushy research")
    with pytest.raises(InputError, match="you have not blocked"):
        home.known.find_blocked("Somebody")
    home.known.unblock(pushy.party_id)
    home.known.remember([pushy])
    assert home.known.blocked() == []


def test_who_is_not_known_is_not_found(home: Home) -> None:
    """The hint names those who are."""
    with pytest.raises(InputError, match="you know no party 'Nobody'"):
        home.known.find("Nobody")
    home.known.remember([someone("City hospital"), someone("Registry")])
    with pytest.raises(InputError) as refused:
        home.known.forget("Nobody")
    assert "'City hospital', 'Registry'" in refused.value.hint


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data.replace(b"Registry", b"Regis\ttry"),
        lambda data: data.replace(b'"parties":[', b'"parties":[],"others":['),
        lambda _: b"",
        lambda _: b'{"blocked":[],"kind":"home-known","parties":null,"version":1}',
    ],
)
def test_a_damaged_memory_is_no_empty_memory(home: Home, damage: Callable[[bytes], bytes]) -> None:
    """Nothing is signed, and nobody is remembered anew, before it is restored."""
    home.known.remember([someone("Registry")])
    path = home.path / "known.json"
    path.write_bytes(damage(path.read_bytes()))
    for step in (home.known.check, home.known.remember, home.known.standings):
        with pytest.raises(HomeError, match=r"known\.json is damaged"):
            step([someone("City hospital")])


def test_an_old_copy_has_forgotten_what_came_later(home: Home) -> None:
    """It cannot be told from a memory that has met nobody since: the documentation says so."""
    home.known.remember([someone("Registry")])
    path = home.path / "known.json"
    old = path.read_bytes()
    hospital, impostor = someone("City hospital"), someone("City hospital")
    home.known.verify(hospital, digits(hospital))
    path.write_bytes(old)
    assert home.known.standings([hospital, impostor]) == [Standing.NEW, Standing.NEW]


def test_commands_at_the_same_time_lose_nobody(home: Home) -> None:
    """Each has the home to itself while it changes the file; of two equal names one is refused."""
    parties = [someone(f"Party {letter}") for letter in "abcd"] + [someone("Twin"), someone("Twin")]
    refused: list[KeyChangedError] = []

    def meet(identity: PublicIdentity) -> None:
        try:
            Home(home.path).known.remember([identity])
        except KeyChangedError as error:
            refused.append(error)

    threads = [threading.Thread(target=meet, args=(identity,)) for identity in parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [known.name for known in home.known.parties()]
    assert names == ["Party a", "Party b", "Party c", "Party d", "Twin"]
    assert len(refused) == 1
