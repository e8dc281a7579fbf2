"""What answers lack without the parts of a store that are not read, and which answers say so (docs/stores.md)."""

from dataclasses import dataclass

from prose import rows


@dataclass(frozen=True)
class Unread:
    """One part of the store: what it is, what answers are without it, and which answers say so besides."""

    name: str
    what: str
    without: str
    said_by: tuple[str, ...]


UNREAD = tuple(
    Unread(*texts, tuple(filter(None, said.split(", "))))
    for *texts, said in rows("""
compaction/ ‖ the newest message of each key of topics with `cleanup.policy=COMPACTION` ‖ a broker's queue begins with
  offset 0 and gives messages from there; here it begins with what the log still has, and older values are not found ‖
  topics, queues, find, query, tail, search, life, export, space
config/topicQueueMapping.json ‖ the mapping of static topics, whose queues several brokers share ‖ queues and offsets
  are those of this broker's own queues; routes have no mapping ‖ topics, queues, find, query, tail, search, life,
  export, space
config/users ‖ users of ACL 2.0 ‖ accounts are those of `--acl` alone ‖ listUser
config/acls ‖ policies of ACL 2.0 ‖ rights are those of `--acl` alone ‖ listUser
config/consumerOrderInfo.json ‖ what groups that pop in order have in hand ‖ that counts as consumed ‖ groups, life
config/messageRequestMode.json ‖ which groups are to pop a topic ‖ all pull ‖ groups, life
kvStore/ ‖ the notes of pops of a broker with `popConsumerKVServiceEnable` ‖ what is popped and not acknowledged
  counts as consumed ‖ groups, life, pending
rocksdbstore/ ‖ timers, half messages and keys of a broker with `timerRocksDBEnable`, `transRocksDBEnable` or
  `indexRocksDBEnable` ‖ all three are taken from the log; an empty database, which brokers from 5.5 on make in each
  store, is not named ‖
epochFileCheckpoint ‖ the epochs of controller mode; used is only that records are older than the last epoch ‖ the log
  ends where its last intact record does, also where a controller would cut it ‖
""")
)
