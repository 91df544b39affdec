"""The tables of the server's database; ``migrations`` creates them, and a test compares both."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""Names are fixed here, so that a later migration can refer to them on every database."""

SCHEMA = "0001"
"""The newest migration: what a database has that is brought up to these tables."""

INVITATIONS = Table(
    "invitations",
    METADATA,
    Column("code_hash", LargeBinary, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("party", LargeBinary),
    Column("used", BigInteger),
)

PARTIES = Table(
    "parties",
    METADATA,
    Column("party", LargeBinary, primary_key=True),
    Column("name", Text, nullable=False),
    Column("signing_key", LargeBinary, nullable=False),
    Column("sealing_key", LargeBinary, nullable=False),
    Column("newest_signing", LargeBinary, nullable=False),
    Column("newest_sealing", LargeBinary, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("banned", BigInteger),
    Column("revocation", LargeBinary),
)

# How a party's keys have changed; "content" is a signed message.
ROTATIONS = Table(
    "rotations",
    METADATA,
    Column("party", LargeBinary, ForeignKey("parties.party"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)

# Whose proposals a party refuses.
BLOCKS = Table(
    "blocks",
    METADATA,
    Column("party", LargeBinary, primary_key=True),
    Column("blocked", LargeBinary, primary_key=True),
    Column("at", BigInteger, nullable=False),
)

NONCES = Table(
    "nonces",
    METADATA,
    Column("party", LargeBinary, primary_key=True),
    Column("nonce", LargeBinary, primary_key=True),
    Column("created", BigInteger, nullable=False),
    Index(None, "created"),
)

# Studies and vaults: a vault has the same members, messages and log, and no noise key.  In a study
# on stored tables, "vault" is the one that it reads.
# No check here on purpose: PostgreSQL logs the whole row that fails one, and so the noise key.
STUDIES = Table(
    "studies",
    METADATA,
    Column("study", LargeBinary, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("vault", LargeBinary),
    Column("title", Text, nullable=False),
    Column("contract", LargeBinary, nullable=False),
    Column("state", Text, nullable=False),
    Column("noise_key", LargeBinary),
    Column("reason", Text),
    Column("created", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
    Column("proposer", LargeBinary, nullable=False),
    Column("any_researcher", Boolean, nullable=False),
    Column("archived", BigInteger),
    Column("size", BigInteger, nullable=False),  # of the contract, for the proposer's quota
    Index(None, "state"),
    Index("ix_studies_proposer", "proposer", "state", "created", "size"),
    Index(None, "vault"),
)

MEMBERS = Table(
    "members",
    METADATA,
    Column("study", LargeBinary, ForeignKey("studies.study"), primary_key=True),
    Column("party", LargeBinary, primary_key=True),
    Column("role", Text, nullable=False),
    Column("place", Text, nullable=False),
    Column("name", Text),
    Column("position", BigInteger),
    Column("signed", Boolean, nullable=False),
    Column("created", BigInteger, nullable=False),
    CheckConstraint("role IN ('curator', 'researcher')", name="role"),
    CheckConstraint("place IN ('listed', 'inbox', 'hidden')", name="place"),
    # In the order of the pages of a list, so that a long list costs no more than a short one.
    Index("ix_members_party", "party", "place", "created", "study"),
)

MESSAGES = Table(
    "messages",
    METADATA,
    Column("study", LargeBinary, ForeignKey("studies.study"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("sender", LargeBinary, primary_key=True),
    Column("reference", LargeBinary, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("size", BigInteger, nullable=False),  # of the content, for the sender's quota
    Column("content", LargeBinary, nullable=False),
    Column("at", BigInteger, nullable=False),
    Index("ix_messages_sender", "sender", "size"),
)

# What a grant is about, so that no status need read the grant itself.
GRANTED = Table(
    "granted",
    METADATA,
    Column("study", LargeBinary, ForeignKey("studies.study"), primary_key=True),
    Column("grant_id", LargeBinary, primary_key=True),
    Column("curator", LargeBinary, nullable=False),
    Column("researcher", LargeBinary, nullable=False),
    Column("attributes", Text, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Index("ix_granted_study", "study", "researcher"),
)

# Bytes and chunks of a study on the disk, for which a party answers.
HELD = Table(
    "held",
    METADATA,
    Column("study", LargeBinary, ForeignKey("studies.study"), primary_key=True),
    Column("party", LargeBinary, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("chunks", BigInteger, nullable=False),
    Index("ix_held_party", "party", "bytes"),
)

# Triggers in the migration refuse every change of an entry, and every entry out of its order.
AUDIT = Table(
    "audit",
    METADATA,
    Column("study", LargeBinary, ForeignKey("studies.study"), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)
