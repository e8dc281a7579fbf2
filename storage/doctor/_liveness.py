"""Does a broker run on the store, and did the last one stop cleanly (store-format §1.5, §6.5)?"""

from storage.amounts import counted
from storage.doctor._opened_store import OpenedStore
from storage.doctor.finding import CLEARED_BY_A_START, Finding, Findings, Kind, Severity
from storage.recovery.queue_outcome import doomed_index_files


def check_liveness(store: OpenedStore, unindexed_messages: int) -> list[Finding]:
    """Report what `lock` and `abort` say about the broker; `unindexed_messages` have no index entries now."""
    findings, state, root = Findings("liveness"), store.state, store.layout.root
    if state.is_live:
        pid = state.lock_pid or state.broker_pid
        findings.add(
            Kind.BROKER,
            Severity.INFO,
            root / "lock",
            f"a broker runs on the store (process {pid})" if pid else "a broker runs on the store",
            "messages that are being written may look like lag; index and queues can only be rebuilt elsewhere (--out)",
            "no fix is needed",
        )
    elif state.has_crashed:
        lost = len(doomed_index_files(store.layout.index, store.checkpoint))
        found = (
            "the file abort exists and no process holds the lock: the broker crashed, or the store was copied while it "
            "ran"
        )
        meaning = "a broker that starts here reads its log again from where the checkpoint says"
        if not lost and not unindexed_messages:
            meaning += "; it keeps all index files, and no message lacks its entries"
            findings.add(Kind.BROKER, Severity.INFO, root / "abort", found, meaning, CLEARED_BY_A_START)
            return findings.listed()
        if lost:
            meaning += f", and deletes {lost} of {counted(len(store.index.files), 'index file')}"
        meaning += (
            "; messages that it does not read again stay without index entries, unless the index is rebuilt first"
        )
        remedy = store.command("rebuild index")
        findings.add(Kind.BROKER, Severity.WARNING, root / "abort", found, meaning, remedy)
    return findings.listed()
