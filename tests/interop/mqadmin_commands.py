"""Every command that mqadmin 5.5.0 knows: how the tests type it at a server of ours, and what it must print.

`{server}` is our address, as name server and broker alike, `{folder}` a folder to write to, `{group}` a group with a
consumer that is connected, `{producers}` one of producers. What is printed is a pattern that must be found.
"""

from dataclasses import dataclass
from enum import StrEnum

READ_ONLY = r"CODE: 16  DESC: this broker is read-only"
NOT_SUPPORTED = r"CODE: 3  DESC:  request type \d+ not supported; "
NO_ROUTE = r"No route info of this topic"
"""What producers say where no queue may be written to."""

KEPT_SILENT = r"\[broker-a\] error\."
"""All that some commands print of a refusal."""

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"
OFFSET_ID = "7F00000100002A9F00000000000019B5"
BROKER = "-b {server}"
CLUSTER = "-c DefaultCluster"
CONTROLLER = "-a {server}"


class Outcome(StrEnum):
    """What becomes of a command, in the words of docs/mqadmin.md."""

    WORKS = "works"
    REFUSED = "refused"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Run:
    """One command: what is typed behind its name, and a pattern of what it prints.

    `answered` is a code that some request of it must have been answered with, None where it comes to no such request;
    `limit_millis` for a command that goes on until somebody stops it.
    """

    outcome: Outcome
    arguments: str
    printed: str
    answered: int | None
    limit_millis: int = 0


def works(arguments: str, printed: str) -> Run:
    return Run(Outcome.WORKS, arguments, printed, 0)


def refused(arguments: str, printed: str = READ_ONLY, answered: int | None = 16, limit_millis: int = 0) -> Run:
    return Run(Outcome.REFUSED, arguments, printed, answered, limit_millis)


def not_applicable(arguments: str, printed: str = NOT_SUPPORTED, answered: int | None = 3) -> Run:
    return Run(Outcome.NOT_APPLICABLE, arguments, printed, answered)


RUNS = {
    # ------------------------------------------------------------------ messages
    "queryMsgById": works(f"-t TopicTest -i {OFFSET_ID}", r"Message Body Path:"),
    "queryMsgByKey": works("-t TopicTest -k hotkey -m 3", r"#Message ID"),
    "queryMsgByUniqueKey": works(f"-t TopicTest -i {UNIQUE_KEY} -s 0 -e 9999999999999", r"Message Body Path:"),
    "queryMsgByOffset": works("-t TopicTest -b broker-a -i 2 -o 1", r"OffsetID:"),
    "queryMsgTraceById": works(f"-i {UNIQUE_KEY}", r"CODE: 208  DESC: query message by key finished, but no message"),
    "printMsg": works("-t TopicTest -s TagD", r"MSGID: "),
    "printMsgByQueue": works("-t TopicTest -a broker-a -i 0 -p true", r"MSGID: "),
    "consumeMessage": works("-t TopicTest -b broker-a -i 0 -o 0 -c 3", r"Consume ok"),
    "queryCq": works("-t TopicTest -q 0 -i 0 -c 5 -b {server}", r"Queue data: \nmax: 12, min: 0"),
    "dumpCompactionLog": not_applicable("-f {folder}/none", r"file .*/none not exist", None),
    "sendMessage": refused("-t TopicTest -p hello", NO_ROUTE, None),
    "sendMsgStatus": refused("-b broker-a -c 1", NO_ROUTE, None),
    "checkMsgSendRT": refused("-t TopicTest -a 2", r"false +\d+\n", None),
    "clusterRT": refused("-a 1 -c DefaultCluster", r"DefaultCluster +broker-a +\S+ +0 +1", None, limit_millis=1000),
    # ------------------------------------------------------------------ topics
    "topicList": works("-c", r"TopicTest"),
    "topicRoute": works("-t TopicTest", r"brokerDatas"),
    "topicStatus": works("-t TopicTest", r"#Max Offset"),
    "topicClusterList": works("-t TopicTest", r"DefaultCluster"),
    "allocateMQ": works("-t TopicTest -i 127.0.0.1,127.0.0.2", r'"queueId":3'),
    "statsAll": works("-t TopicTest", r"CG_TAG +44"),
    "updateTopic": refused(f"{BROKER} -t New"),
    "updateTopicList": refused(f"{BROKER} -f {{folder}}/topics.json"),
    "updateTopicPerm": refused(f"{BROKER} -t TopicTest -p 2"),
    "deleteTopic": refused(f"{CLUSTER} -t TopicTest"),
    "updateStaticTopic": refused(f"{CLUSTER} -t Static -qn 2"),
    "remappingStaticTopic": refused(f"{CLUSTER} -t TopicTest", r"Mapping info should not be null in broker", None),
    "updateOrderConf": refused("-t TopicTest -m put -v broker-a:4"),
    # ------------------------------------------------------------------ groups and clients
    "consumerProgress": works("-g CG_TAG", r"Consume Inflight Total: 44"),
    "consumerStatus": works("-g {group} -s", r"Rebalance OK"),
    "consumerConnection": works("-g {group}", r"ConsumeType: CONSUME_PASSIVELY"),
    "producerConnection": works("-g {producers} -t TopicTest", r"0001 "),
    "producer": works(BROKER, r"producer group \(CLIENT_INNER_PRODUCER\) instance : "),
    "getConsumerConfig": works("-g CG_TAG", r"retryMaxTimes"),
    "brokerConsumeStats": works(BROKER, r"(?s)CG_TAG +broker-a +1 +15 +2 +13 .*Diff Total: \d+"),
    "startMonitoring": works("", r"^$"),
    "updateSubGroup": refused(f"{BROKER} -g New"),
    "updateSubGroupList": refused(f"{BROKER} -f {{folder}}/groups.json"),
    "deleteSubGroup": refused(f"{BROKER} -g CG_TAG"),
    "setConsumeMode": refused(f"{BROKER} -t TopicTest -g CG_TAG -m POP -q 1"),
    "cloneGroupOffset": refused("-s CG_TAG -d CG_CLONE -t TopicTest"),
    "resetOffsetByTime": refused("-g CG_TAG -t TopicTest -s 0"),
    "skipAccumulatedMessage": refused("-g CG_TAG -t TopicTest"),
    "exportPopRecord": refused(f"{BROKER} -d true"),
    # ------------------------------------------------------------------ broker
    "brokerStatus": works(BROKER, r"commitLogMaxOffset +: 156014"),
    "getBrokerConfig": works(BROKER, r"brokerName +=  broker-a"),
    "haStatus": works(BROKER, r"#MasterCommitLogMaxOffset\t156014"),
    "getColdDataFlowCtrInfo": works(BROKER, r"globalColdReadThreshold"),
    "updateBrokerConfig": refused(f"{BROKER} -k x -v y"),
    "cleanExpiredCQ": refused(BROKER),
    "cleanUnusedTopic": refused(BROKER),
    "deleteExpiredCommitLog": refused(BROKER),
    "resetMasterFlushOffset": refused(f"{BROKER} -o 0"),
    "updateColdDataFlowCtrGroupConfig": refused(f"{BROKER} -g CG_TAG -v 1"),
    "removeColdDataFlowCtrGroupConfig": refused(f"{BROKER} -g CG_TAG"),
    "setCommitLogReadAheadMode": refused(f"{BROKER} -m 1"),
    "switchTimerEngine": refused(f"{BROKER} -e F"),
    "getBrokerEpoch": not_applicable("-b broker-a", r"CODE: 1  DESC: this request only for controllerMode", 1),
    "checkRocksdbCqWriteProgress": not_applicable(CLUSTER),
    "rocksDBConfigToJson": not_applicable(CLUSTER),
    "exportMetadataInRocksDB": not_applicable("-p {folder}/none -t topics", r"RocksDB path is invalid", None),
    # ------------------------------------------------------------------ cluster and name server
    "clusterList": works("-m", r"#InTotalYest"),
    "getNamesrvConfig": works("", r"enableAllTopicList"),
    "exportMetadata": works(f"{CLUSTER} -f {{folder}}", r"export .*/metadata.json success"),
    "exportConfigs": works(f"{CLUSTER} -f {{folder}}", r"export .*/configs.json success"),
    "exportMetrics": works(f"{CLUSTER} -f {{folder}}", r"export .*/metrics.json success"),
    "updateNamesrvConfig": refused("-k x -v y"),
    "updateKvConfig": refused("-s n -k x -v y"),
    "deleteKvConfig": refused("-s n -k x"),
    "wipeWritePerm": refused("-b broker-a"),
    "addWritePerm": refused("-b broker-a"),
    "addBroker": refused("-c {server} -b {folder}/broker.conf"),
    "removeBroker": refused("-c {server} -b DefaultCluster:broker-a:0"),
    # ------------------------------------------------------------------ controller
    "getControllerMetaData": not_applicable(CONTROLLER),
    "getControllerConfig": not_applicable(CONTROLLER),
    "getSyncStateSet": not_applicable(f"{CONTROLLER} -b broker-a"),
    "updateControllerConfig": refused(f"{CONTROLLER} -k x -v y"),
    "electMaster": not_applicable(f"{CONTROLLER} -b 1 -bn broker-a -c DefaultCluster"),
    "cleanBrokerMetadata": not_applicable(f"{CONTROLLER} -bn broker-a -c DefaultCluster"),
    # ------------------------------------------------------------------ users and rights
    "getUser": not_applicable(f"{BROKER} -u u"),
    "listUser": not_applicable(BROKER),
    "copyUser": not_applicable("-f {server} -t {server}"),
    "getAcl": not_applicable(f"{BROKER} -s User:u"),
    "listAcl": not_applicable(BROKER),
    "copyAcl": not_applicable("-f {server} -t {server}"),
    "createUser": refused(f"{BROKER} -u u -p p"),
    "updateUser": refused(f"{BROKER} -u u -p p"),
    "deleteUser": refused(f"{BROKER} -u u"),
    "createAcl": refused(f"{BROKER} -s User:u -r Topic:T -a Pub -d Allow"),
    "updateAcl": refused(f"{BROKER} -s User:u -r Topic:T -a Pub -d Allow"),
    "deleteAcl": refused(f"{BROKER} -s User:u"),
    # ------------------------------------------------------------------ lite topics
    "getBrokerLiteInfo": not_applicable(BROKER),
    "getParentTopicInfo": not_applicable("-p TopicTest", KEPT_SILENT),
    "getLiteTopicInfo": not_applicable("-p TopicTest -l a", KEPT_SILENT),
    "getLiteClientInfo": not_applicable("-p TopicTest -g CG_TAG -c c", KEPT_SILENT),
    "getLiteGroupInfo": not_applicable("-p TopicTest -g CG_TAG", KEPT_SILENT),
    "triggerLiteDispatch": refused("-p TopicTest -g CG_TAG", r"broker-a +error"),
}
"""By name of the command."""

OLD_RUNS = {
    "updateAclConfig": refused(f"{BROKER} -a AKother -s SKother12"),
    "deleteAclConfig": refused(f"{BROKER} -a AKother"),
    "updateGlobalWhiteAddr": refused(f"{BROKER} -g 10.0.0.1"),
    "clusterAclConfigVersion": not_applicable(BROKER),
    "queryMsgByKey": works("-t TopicTest -k hotkey", r"#Message ID"),
    "queryMsgByUniqueKey": works(f"-t TopicTest -i {UNIQUE_KEY}", r"Message Body Path:"),
    "consumerProgress": works("-g CG_TAG", r"Diff Total: 44"),
}
"""Commands that only mqadmin up to 5.2 knows, or that are typed otherwise at 4.9."""

NOTES = {
    "queryMsgById": (
        "also for ids of [brokers that are gone](find.md#offset-message-ids-of-brokers-that-are-gone); `-g -d` has "
        "a connected consumer consume the message; `-s` sends, and is refused"
    ),
    "queryMsgByKey": "by key (`-p K`) and by tag (`-p T`), in pages (`-l`)",
    "queryMsgByUniqueKey": "mqadmin 5.4 and later looks 36 hours back and ahead unless `-s` and `-e` say otherwise",
    "queryMsgTraceById": "if the store holds a trace topic",
    "queryMsgByOffset printMsg printMsgByQueue consumeMessage": "they pull, and commit nothing",
    "queryCq": "with `-g` also how the group's filter decides each unit",
    "topicList": "also topics that are in the store but in no configuration",
    "topicRoute topicStatus topicClusterList allocateMQ": (
        "every queue is readable and none is writable; the cluster has the store's name"
    ),
    "statsAll": (
        "how far a group is behind, and how much it consumes, counted from the offsets that it commits here; InTPS "
        "and InMsg24Hour are 0"
    ),
    "consumerProgress": (
        "the groups of `consumerOffset.json` and those that consume here. In flight is what a group that consumes "
        "here has pulled and not committed, for other groups what the store's broker had recorded as pulled. `-s` "
        "asks the consumers"
    ),
    "consumerStatus consumerConnection producerConnection producer": (
        "ask or list the clients that are connected here, producers too, although they cannot send; "
        "`consumerStatus -s` shows stacks of threads"
    ),
    "getConsumerConfig": ("from `subscriptionGroup.json`; a group that is not in it is shown with a broker's defaults"),
    "brokerConsumeStats startMonitoring": "every group, topic by topic",
    "brokerStatus": (
        "offsets of the log, its first message, the progress of delay levels; figures of threads, writes and rates "
        "are 0 ([metrics.md](metrics.md) has requests)"
    ),
    "getBrokerConfig exportConfigs": (
        "the properties that are true of RocketLens, those that exporting tools of 4.9 and later need, and the "
        "sizes of the store's files, which a broker on this store must be configured with"
    ),
    "haStatus getColdDataFlowCtrInfo": "a master without slaves, at the end of the log; no flow control",
    "clusterList": "one broker for each store",
    "getNamesrvConfig exportMetadata": (
        "the name server's properties that are true here; topics and groups of the store"
    ),
    "exportMetrics": "the number of topics and groups, and the use of the disk; rates are 0",
    "sendMessage sendMsgStatus checkMsgSendRT clusterRT": "send",
    (
        "updateTopic updateTopicList updateTopicPerm deleteTopic updateStaticTopic updateSubGroup "
        "updateSubGroupList deleteSubGroup setConsumeMode"
    ): ("write"),
    "remappingStaticTopic": "if a topic is not static, mqadmin says so itself",
    "updateOrderConf": "`-m get` is answered that there is no such item",
    "cloneGroupOffset": "the offsets of a group that consumes here can be set, until its members commit theirs",
    "resetOffsetByTime skipAccumulatedMessage exportPopRecord": "write offsets, or move records of popped messages",
    (
        "updateBrokerConfig resetMasterFlushOffset updateColdDataFlowCtrGroupConfig "
        "removeColdDataFlowCtrGroupConfig setCommitLogReadAheadMode switchTimerEngine cleanExpiredCQ "
        "cleanUnusedTopic deleteExpiredCommitLog"
    ): ("write or delete"),
    (
        "updateNamesrvConfig updateKvConfig deleteKvConfig wipeWritePerm addWritePerm addBroker removeBroker "
        "updateControllerConfig"
    ): ("write, or start and stop brokers"),
    "createUser updateUser deleteUser createAcl updateAcl deleteAcl triggerLiteDispatch": (
        "write; so do `updateAclConfig`, `deleteAclConfig`, `updateGlobalWhiteAddr` of mqadmin 4.9"
    ),
    "getUser listUser copyUser getAcl listAcl copyAcl": (
        "users and policies of ACL 2.0 [are not read](stores.md#what-is-not-read); accounts are those of `--acl`, "
        "of which no answer reveals anything, nor does `clusterAclConfigVersion` of mqadmin 4.9"
    ),
    "getBrokerEpoch": (
        "no controller: `CODE: 1  DESC: this request only for controllerMode`, as from any broker without one"
    ),
    "getControllerMetaData getControllerConfig getSyncStateSet electMaster cleanBrokerMetadata": (
        "this server is no controller"
    ),
    "checkRocksdbCqWriteProgress rocksDBConfigToJson": (
        "queues and configuration are in files; without `-n` the latter reads a local folder"
    ),
    "dumpCompactionLog exportMetadataInRocksDB": "read local files, and ask no server",
    "getBrokerLiteInfo getParentTopicInfo getLiteTopicInfo getLiteClientInfo getLiteGroupInfo": (
        "subscriptions to lite topics are only in a broker's memory"
    ),
}
"""What there is to say of commands, by their names: the table of docs/mqadmin.md in the site."""
