"""The tables of the server's database; ``migrations`` creates them, and a test compares both."""

from sqlalchemy import (
    BigInteger,
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
    Column("created", BigInteger, nullable=False),
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
    Index(None, "state"),
    Index(None, "vault"),
)

MEMBERS = Table(
    "members",
    METADATA,
    Column("study", LargeBinary, ForeignKey("studies.study"), primary_key=True),
    Column("party", LargeBinary, primary_key=True),
    Column("role", Text, nullable=False),
    CheckConstraint("role IN ('curator', 'researcher')", name="role"),
    Index(None, "party"),
)

MESSAGES = Table(
    "messages",
    METADATA,
    Column("study", LargeBinary, ForeignKey("studies.study"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("sender", LargeBinary, primary_key=True),
    Column("reference", LargeBinary, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("at", BigInteger, nullable=False),
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
