"""The first schema: people, studies, messages, and an audit log that only grows."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NEXT = "(SELECT COALESCE(MAX(sequence) + 1, 0) FROM audit WHERE study = NEW.study)"


def upgrade() -> None:
    """Create every table, and the triggers that keep the audit log as it was written."""
    _create_people()
    _create_studies()
    _create_messages()
    _create_usage()
    if op.get_bind().dialect.name == "sqlite":
        _protect_audit_on_sqlite()
    else:
        _protect_audit_on_postgresql()


def _create_people() -> None:
    op.create_table(
        "invitations",
        sa.Column("code_hash", sa.LargeBinary, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("party", sa.LargeBinary),
        sa.Column("used", sa.BigInteger),
        sa.PrimaryKeyConstraint("code_hash", name="pk_invitations"),
    )
    op.create_table(
        "parties",
        sa.Column("party", sa.LargeBinary, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("signing_key", sa.LargeBinary, nullable=False),
        sa.Column("sealing_key", sa.LargeBinary, nullable=False),
        sa.Column("newest_signing", sa.LargeBinary, nullable=False),
        sa.Column("newest_sealing", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("banned", sa.BigInteger),
        sa.Column("revocation", sa.LargeBinary),
        sa.PrimaryKeyConstraint("party", name="pk_parties"),
    )
    op.create_table(
        "rotations",
        sa.Column("party", sa.LargeBinary, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(["party"], ["parties.party"], name="fk_rotations_party"),
        sa.PrimaryKeyConstraint("party", "sequence", name="pk_rotations"),
    )
    op.create_table(
        "blocks",
        sa.Column("party", sa.LargeBinary, nullable=False),
        sa.Column("blocked", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("party", "blocked", name="pk_blocks"),
    )
    op.create_table(
        "nonces",
        sa.Column("party", sa.LargeBinary, nullable=False),
        sa.Column("nonce", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("party", "nonce", name="pk_nonces"),
    )
    op.create_index("ix_nonces_created", "nonces", ["created"])


def _create_studies() -> None:
    op.create_table(
        "studies",
        sa.Column("study", sa.LargeBinary, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("vault", sa.LargeBinary),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("contract", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("noise_key", sa.LargeBinary),
        sa.Column("reason", sa.Text),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("updated", sa.BigInteger, nullable=False),
        sa.Column("proposer", sa.LargeBinary, nullable=False),
        sa.Column("any_researcher", sa.Boolean, nullable=False),
        sa.Column("archived", sa.BigInteger),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("study", name="pk_studies"),
    )
    op.create_index("ix_studies_state", "studies", ["state"])
    op.create_index("ix_studies_proposer", "studies", ["proposer", "state", "created", "size"])
    op.create_index("ix_studies_vault", "studies", ["vault"])
    op.create_table(
        "members",
        sa.Column("study", sa.LargeBinary, nullable=False),
        sa.Column("party", sa.LargeBinary, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("name", sa.Text),
        sa.Column("position", sa.BigInteger),
        sa.Column("signed", sa.Boolean, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("study", "party", name="pk_members"),
        sa.ForeignKeyConstraint(["study"], ["studies.study"], name="fk_members_study"),
        sa.CheckConstraint("role IN ('curator', 'researcher')", name=op.f("ck_members_role")),
        sa.CheckConstraint("place IN ('listed', 'inbox', 'hidden')", name=op.f("ck_members_place")),
    )
    op.create_index("ix_members_party", "members", ["party", "place", "created", "study"])


def _create_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("study", sa.LargeBinary, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("sender", sa.LargeBinary, nullable=False),
        sa.Column("reference", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("study", "kind", "sender", "reference", name="pk_messages"),
        sa.ForeignKeyConstraint(["study"], ["studies.study"], name="fk_messages_study"),
    )
    op.create_index("ix_messages_sender", "messages", ["sender", "size"])
    op.create_table(
        "audit",
        sa.Column("study", sa.LargeBinary, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("study", "sequence", name="pk_audit"),
        sa.ForeignKeyConstraint(["study"], ["studies.study"], name="fk_audit_study"),
    )


def _create_usage() -> None:
    op.create_table(
        "granted",
        sa.Column("study", sa.LargeBinary, nullable=False),
        sa.Column("grant_id", sa.LargeBinary, nullable=False),
        sa.Column("curator", sa.LargeBinary, nullable=False),
        sa.Column("researcher", sa.LargeBinary, nullable=False),
        sa.Column("attributes", sa.Text, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("revoked", sa.BigInteger),
        sa.PrimaryKeyConstraint("study", "grant_id", name="pk_granted"),
        sa.ForeignKeyConstraint(["study"], ["studies.study"], name="fk_granted_study"),
    )
    op.create_index("ix_granted_study", "granted", ["study", "researcher"])
    op.create_table(
        "held",
        sa.Column("study", sa.LargeBinary, nullable=False),
        sa.Column("party", sa.LargeBinary, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("chunks", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("study", "party", name="pk_held"),
        sa.ForeignKeyConstraint(["study"], ["studies.study"], name="fk_held_study"),
    )
    op.create_index("ix_held_party", "held", ["party", "bytes"])


def _protect_audit_on_sqlite() -> None:
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_no_{change.lower()} BEFORE {change} ON audit "
            "BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END"
        )
    # REPLACE deletes without asking the trigger above, but it cannot get past this one.
    op.execute(
        "CREATE TRIGGER audit_in_order BEFORE INSERT ON audit "
        f"WHEN NEW.sequence <> {_NEXT} "
        "BEGIN SELECT RAISE(ABORT, 'the audit log has no gaps'); END"
    )


def _protect_audit_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE integrity_constraint_violation USING MESSAGE = 'the audit log only grows'; "
        "END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()"
    )
    op.execute(
        "CREATE FUNCTION check_audit_order() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF NEW.sequence <> {_NEXT} THEN "
        "RAISE integrity_constraint_violation USING MESSAGE = 'the audit log has no gaps'; "
        "END IF; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_in_order BEFORE INSERT ON audit "
        "FOR EACH ROW EXECUTE FUNCTION check_audit_order()"
    )
