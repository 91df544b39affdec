"""What a study takes of each data set's privacy budget: before a signature, and after."""

from dataclasses import dataclass, replace

from veiltab.errors import BudgetError, StateError
from veiltab.party.ledgers import Ledgers, StoredLedger
from veiltab.protocol.curator.agreement import charge
from veiltab.wire.contract import Contract


@dataclass(frozen=True, slots=True)
class Cost:
    """What is left of one data set's budget without a study and with it.

    ``refusal`` says why it cannot be charged; then nothing is taken, and what is left stays.
    """

    dataset: str
    charged: bool
    refusal: str | None
    epsilon_limit: float
    epsilon_before: float
    epsilon_after: float
    delta_limit: float
    delta_before: float
    delta_after: float

    @property
    def fits(self) -> bool:
        """Whether the study is charged to the data set already, or can be."""
        return self.refusal is None


def costs(ledgers: Ledgers, contract: Contract, dataset: str | None = None) -> list[Cost]:
    """Return what a study costs each data set of a home, or one of them."""
    stored = ledgers.all_ledgers() if dataset is None else [ledgers.open_ledger(dataset)]
    return [_cost(one, contract) for one in stored]


def _cost(stored: StoredLedger, contract: Contract) -> Cost:
    ledger = stored.ledger
    study, refusal = contract.study_id, None
    charged = ledger.entry_of(study) is not None and ledger.refund_of(study) is None
    before = after = stored
    if charged:
        others = tuple(entry for entry in ledger.entries if entry.study != study)
        before = StoredLedger(replace(ledger, entries=others))
    else:
        try:
            after = StoredLedger(charge(contract, ledger))
        except (BudgetError, StateError) as error:
            refusal = error.message
    return Cost(
        dataset=ledger.dataset,
        charged=charged,
        refusal=refusal,
        epsilon_limit=ledger.epsilon_limit,
        epsilon_before=before.epsilon_left,
        epsilon_after=after.epsilon_left,
        delta_limit=ledger.delta_limit,
        delta_before=before.delta_left,
        delta_after=after.delta_left,
    )
