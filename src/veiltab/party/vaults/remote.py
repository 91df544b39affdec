"""A server's vaults as a curator sees them: one method for each route (service spec).

As with :mod:`veiltab.party.remote`, whatever comes back has a limited size and the expected form,
and belongs to the vault or study that was asked about; who signed it is for the roles to verify.
"""

from collections.abc import Callable, Iterable, Sequence

from veiltab.errors import MismatchError
from veiltab.party.answers import (
    FLAG,
    MAX_LOG_PAGE_BYTES,
    TIME,
    Answer,
    Log,
    Status,
    as_message,
    expect_study,
    read_list,
    read_log_page,
    read_log_pages,
    read_object,
    read_pages,
)
from veiltab.party.connection import CHUNK, Call
from veiltab.party.transfer import read_bundle, send_all
from veiltab.wire.bundles import BUNDLE_BYTES, NamedChunk, bundle_pieces
from veiltab.wire.codec import TEXT, dump, items, message, nested, optional, wired
from veiltab.wire.contract import DIGEST, PARTY_ID, Vault
from veiltab.wire.messages import Repad, RepadRequest, Secret, Upload
from veiltab.wire.signed import Signed


@message
class VaultCurator(Answer):
    """How far a curator has got in a vault; ``upload`` is the digest of its stored table."""

    name: str = wired(TEXT)
    party: bytes = wired(PARTY_ID)
    signed: bool = wired(FLAG)
    uploaded: bool = wired(FLAG)
    upload: bytes | None = wired(optional(DIGEST))


@message
class VaultSummary(Answer):
    """A vault in the list of those that name a party; ``updated`` in Unix seconds."""

    vault: bytes = wired(DIGEST)
    title: str = wired(TEXT)
    state: str = wired(TEXT)
    role: str = wired(TEXT)
    updated: int = wired(TIME)


@message
class VaultStatus(VaultSummary):
    """Where a vault stands."""

    reason: str | None = wired(optional(TEXT))
    curators: tuple[VaultCurator, ...] = wired(items(nested(VaultCurator)))


class RemoteVaults:
    """The vaults of a party's server; ``send`` signs a request and returns the answer's body."""

    def __init__(self, send: Callable[[Call], bytes]) -> None:
        """Send nothing yet."""
        self._send = send

    def all_vaults(self, *, inbox: bool = False) -> list[VaultSummary]:
        """Return all vaults that this party has looked at, or with ``inbox`` those it has not."""
        return read_pages(self._get, "/v1/vaults", "vaults", VaultSummary.from_json, inbox=inbox)

    def propose(self, signed: Signed[Vault]) -> VaultStatus:
        """Propose a vault; sending the same one again changes nothing."""
        return _status(self._post("/v1/vaults", signed.dumps()), signed.body.vault_id)

    def status(self, vault: bytes) -> VaultStatus:
        """Return where a vault stands."""
        return _status(self._get(_path(vault)), vault)

    def terms(self, vault: bytes) -> Signed[Vault]:
        """Return the vault with all signatures so far, which are not verified yet."""
        signed = Vault.loads(self._get(_path(vault, "terms")))
        _expect(signed.body.vault_id, vault, "terms")
        return signed

    def sign(self, signed: Signed[Vault]) -> VaultStatus:
        """Send a vault with this curator's signature on it."""
        vault = signed.body.vault_id
        return _status(self._post(_path(vault, "signatures"), signed.dumps()), vault)

    def send_secret(self, vault: bytes, signed: Signed[Secret]) -> None:
        """Pass the vault's secret on, sealed to another curator."""
        self._post(_path(vault, "secrets"), signed.dumps())

    def secrets(self, vault: bytes) -> list[Signed[Secret]]:
        """Return what this curator has sealed to others, or others to it."""
        body = self._get(_path(vault, "secrets"))
        secrets = read_list(body, "secrets", as_message(Secret.loads))
        for signed in secrets:
            _expect(signed.body.scope, vault, "secret")
        return secrets

    def sent_chunks(self, vault: bytes, total: int) -> set[bytes]:
        """Return the digests of what this curator has sent of so many bytes in all."""
        path = f"{_path(vault, 'chunks')}?total={total}"
        return set(read_list(self._get(path), "chunks", DIGEST.read))

    def send_chunks(
        self, vault: bytes, chunks: Iterable[NamedChunk], on_sent: Callable[[int], None]
    ) -> int:
        """Send chunks with their digests, a few bundles at a time; return how many they were."""
        path = _path(vault, "chunks")

        def send(some: Sequence[NamedChunk]) -> None:
            body, *more = bundle_pieces(some)
            self._send(Call("PUT", path, body, CHUNK, more=more))

        return send_all(send, chunks, on_sent)

    def upload(self, vault: bytes, signed: Signed[Upload]) -> VaultStatus:
        """Send the message that refers to the chunks, which must have been sent before."""
        return _status(self._post(_path(vault, "uploads"), signed.dumps()), vault)

    def close(self, vault: bytes, reason: str) -> VaultStatus:
        """Close a vault for good: the server deletes its tables."""
        return _status(self._post(_path(vault, "close"), dump({"reason": reason})), vault)

    def audit(self, vault: bytes, after: int = 0) -> Log:
        """Return a vault's log from an entry on, and its head; ``protocol.audit_log`` checks it."""

        def fetch(start: int) -> Log:
            path = _path(vault, "audit") + (f"?after={start}" if start else "")
            return read_log_page(self._send(Call("GET", path, limit=MAX_LOG_PAGE_BYTES)), vault)

        return read_log_pages(fetch, after)

    # A study on a vault

    def repad_request(self, study: bytes) -> Signed[RepadRequest]:
        """Return which rows the server has drawn of this curator's table; not verified yet."""
        signed = RepadRequest.loads(self._get(_study_path(study, "repad-request")))
        expect_study(signed.body.study, study, "request for new pads")
        return signed

    def repad_chunks(self, study: bytes, digests: Sequence[bytes]) -> list[bytes]:
        """Return chunks of the positions that a request refers to, checked."""
        body = dump({"chunks": [DIGEST.write(digest, "digest") for digest in digests]})
        path = _study_path(study, "repad-request", "chunks")
        return read_bundle(self._send(Call("POST", path, body, limit=BUNDLE_BYTES)), digests)

    def repad(self, signed: Signed[Repad]) -> Status:
        """Send the answer to a request, whose chunks must have been sent before."""
        study = signed.body.study
        status = Status.from_json(
            read_object(self._post(_study_path(study, "repads"), signed.dumps()))
        )
        expect_study(status.study, study, "status")
        return status

    def _get(self, path: str) -> bytes:
        return self._send(Call("GET", path))

    def _post(self, path: str, body: bytes) -> bytes:
        return self._send(Call("POST", path, body))


def _path(vault: bytes, *parts: str) -> str:
    return "/".join(("/v1/vaults", DIGEST.write(vault, "vault"), *parts))


def _study_path(study: bytes, *parts: str) -> str:
    return "/".join(("/v1/studies", DIGEST.write(study, "study"), *parts))


def _status(body: bytes, vault: bytes) -> VaultStatus:
    status = VaultStatus.from_json(read_object(body))
    _expect(status.vault, vault, "status")
    return status


def _expect(named: bytes, vault: bytes, what: str) -> None:
    """Refuse what belongs to another vault than the one that was asked about."""
    if named != vault:
        raise MismatchError(
            f"the {what} belongs to vault {named.hex()}, not to {vault.hex()}",
            hint="the server has mixed up vaults, perhaps on purpose; ask its operator",
        )
