"""The JSON of each body that RocketLens writes: samples of RocketMQ 5.3.3; those of 5.5.0 are equal."""

from protocol import bodies as b

QUEUE = b.MessageQueue("b-a", 0, "T")
QUEUE_TEXT = '{"brokerName":"b-a","queueId":0,"topic":"T"}'
TAGS = b.SubscriptionData(
    topic="T", sub_string="TagA", code_set=[2598919], sub_version=1700000000000, tags_set=["TagA"]
)
TAGS_TEXT = (
    '{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA",'
    '"subVersion":1700000000000,"tagsSet":["TagA"],"topic":"T"}'
)
BROKER = b.BrokerData(cluster="C", broker_name="b-a", broker_addrs={"0": "127.0.0.1:10911"})
BROKER_TEXT = '{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"b-a","cluster":"C","enableActingMaster":false}'
STATS = b.ConsumeStats(b.message_queue_map([(QUEUE, b.OffsetWrapper(9, 3, 5, 3))]), 1.5)
STATS_TEXT = (
    f'{{"consumeTps":1.5,"offsetTable":{{{QUEUE_TEXT}:'
    '{"brokerOffset":9,"consumerOffset":3,"lastTimestamp":5,"pullOffset":3}}}'
)
CLIENT = b.ConnectedClient(client_addr="10.0.0.1:5555", client_id="10.0.0.1@1#2", language="JAVA", version=477)
CLIENT_TEXT = '{"clientAddr":"10.0.0.1:5555","clientId":"10.0.0.1@1#2","language":"JAVA","version":477}'
STATS_ITEM_TEXT = '{"avgpt":1.0,"sum":1,"tps":0.5}'

SAMPLES: list[tuple[object, str]] = [
    (
        b.TopicRouteData([BROKER], [b.QueueData("b-a", 4, 4, 4)]),
        f'{{"brokerDatas":[{BROKER_TEXT}],"filterServerTable":{{}},"queueDatas":[{{"brokerName":"b-a","perm":4,'
        '"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}',
    ),
    (
        b.ClusterInfo({"b-a": BROKER}, {"C": ["b-a"]}),
        f'{{"brokerAddrTable":{{"b-a":{BROKER_TEXT}}},"clusterAddrTable":{{"C":["b-a"]}}}}',
    ),
    (b.TopicList(["T1", "T2"]), '{"topicList":["T1","T2"]}'),
    (b.TopicList([]), '{"topicList":[]}'),
    (b.TopicList(["T1"], "127.0.0.1:10911"), '{"brokerAddr":"127.0.0.1:10911","topicList":["T1"]}'),
    (
        b.TopicStatsTable(b.message_queue_map([(QUEUE, b.TopicOffset(1700000000000, 9, 1))])),
        f'{{"offsetTable":{{{QUEUE_TEXT}:{{"lastUpdateTimestamp":1700000000000,"maxOffset":9,"minOffset":1}}}},'
        '"topicPutTps":0.0}',
    ),
    (b.TopicStatsTable(b.message_queue_map([])), '{"offsetTable":{},"topicPutTps":0.0}'),
    (STATS, STATS_TEXT),
    (
        b.ConsumeStatsList("1.2.3.4:10911", [{"G": [STATS]}], 6),
        f'{{"brokerAddr":"1.2.3.4:10911","consumeStatsList":[{{"G":[{STATS_TEXT}]}}],"totalDiff":6,"totalInflightDiff":0}}',
    ),
    (b.KVTable({"a": "b"}), '{"table":{"a":"b"}}'),
    (
        b.ConsumerConnection([CLIENT], "CONSUME_FROM_LAST_OFFSET", "CONSUME_PASSIVELY", "CLUSTERING", {"T": TAGS}),
        f'{{"connectionSet":[{CLIENT_TEXT}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        f'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{{"T":{TAGS_TEXT}}}}}',
    ),
    (b.ProducerConnection([CLIENT]), f'{{"connectionSet":[{CLIENT_TEXT}]}}'),
    (
        b.ProducerTableInfo({"PG": [b.ProducerInfo("cid", "JAVA", 5, 477, "1.1.1.1:1")]}),
        '{"data":{"PG":[{"clientId":"cid","language":"JAVA","lastUpdateTimestamp":5,"remoteIP":"1.1.1.1:1","version":477}]}}',
    ),
    (b.GroupList(["G"]), '{"groupList":["G"]}'),
    (b.QuerySubscriptionResponseBody("G", "T", TAGS), f'{{"group":"G","subscriptionData":{TAGS_TEXT},"topic":"T"}}'),
    (b.GetConsumerListByGroupResponseBody(["cid1", "cid2"]), '{"consumerIdList":["cid1","cid2"]}'),
    (
        b.LockBatchRequestBody("G", "cid", [QUEUE]),
        f'{{"clientId":"cid","consumerGroup":"G","mqSet":[{QUEUE_TEXT}],"onlyThisBroker":false}}',
    ),
    (b.LockBatchResponseBody([QUEUE]), f'{{"lockOKMQSet":[{QUEUE_TEXT}]}}'),
    (
        b.QueryAssignmentRequestBody("T", "G", "CLUSTERING", "cid", "AVG"),
        '{"clientId":"cid","consumerGroup":"G","messageModel":"CLUSTERING","strategyName":"AVG","topic":"T"}',
    ),
    (
        b.QueryAssignmentResponseBody([b.MessageQueueAssignment(QUEUE)]),
        f'{{"messageQueueAssignments":[{{"messageQueue":{QUEUE_TEXT},"mode":"PULL"}}]}}',
    ),
    (b.QueryAssignmentResponseBody(), "{}"),
    (
        b.QueryConsumeQueueResponseBody(10, 0, [b.ConsumeQueueData(100, 200, 2598919)], "x", TAGS),
        '{"filterData":"x","maxQueueIndex":10,"minQueueIndex":0,"queueData":[{"eval":false,"physicOffset":100,'
        f'"physicSize":200,"tagsCode":2598919}}],"subscriptionData":{TAGS_TEXT}}}',
    ),
    (
        b.QueryConsumeTimeSpanBody([b.QueueTimeSpan(QUEUE, 1, 2, 3, 4)]),
        f'{{"consumeTimeSpanSet":[{{"consumeTimeStamp":3,"delayTime":4,"maxTimeStamp":2,"messageQueue":{QUEUE_TEXT},'
        '"minTimeStamp":1}]}',
    ),
    (
        b.BrokerStatsData(*[b.BrokerStatsItem(1.0, 1, 0.5)] * 3),
        f'{{"statsDay":{STATS_ITEM_TEXT},"statsHour":{STATS_ITEM_TEXT},"statsMinute":{STATS_ITEM_TEXT}}}',
    ),
    (
        b.HARuntimeInfo(master_commit_log_max_offset=1),
        '{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,"maxOffset":0,'
        '"transferredByteInSecond":0},"haConnectionInfo":[],"inSyncSlaveNums":0,"master":true,'
        '"masterCommitLogMaxOffset":1}',
    ),
    (
        b.HeartbeatData("cid", [b.ProducerData("PG")], [b.ConsumerData("G", subscription_data_set=[TAGS])]),
        '{"clientID":"cid","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        '"consumeType":"CONSUME_PASSIVELY","groupName":"G","messageModel":"CLUSTERING",'
        f'"subscriptionDataSet":[{TAGS_TEXT}],"unitMode":false}}],"heartbeatFingerprint":0,'
        '"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}',
    ),
    ({0: "a", "x": [1.5, True, None]}, '{"0":"a","x":[1.5,true,null]}'),
]

OTHER_SAMPLES = {
    "SubscriptionGroupWrapper (201)": (
        '{"dataVersion":{…},"forbiddenTable":{},"subscriptionGroupTable":{"G":{"attributes":{},"brokerId":0,'
        '"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
        '"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G",'
        '"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,'
        '"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
    ),
    "ResetOffsetBody (222, 220)": '{"offsetTable":{{mq}:5}}',
    "ConsumerOffsetSerializeWrapper (43)": '{"offsetTable":{"T@G":{"0":9}}}',
    "GetConsumerStatusBody (221)": '{"consumerTable":{"cid":{{mq}:3}},"messageQueueTable":{{mq}:3}}',
    "BrokerMemberGroup (901)": '{"brokerMemberGroup":{"brokerAddrs":{"0":"x"},"brokerName":"b-a","cluster":"C"}}',
    "DataVersion": '{"counter":0,"stateVersion":0,"timestamp":0}',
    "UserInfo (3005: a JSON list)": '{"password":"p","userStatus":"enable","userType":"Super","username":"u"}',
    "AclInfo (3010: list)": (
        '{"policies":[{"entries":[{"actions":["Pub"],"decision":"Allow","resource":"Topic:T","sourceIps":[]}],'
        '"policyType":"Custom"}],"subject":"User:u"}'
    ),
    "EpochEntryCache (1007)": '{"brokerId":0,"brokerName":"b-a","clusterName":"C","epochList":[],"maxOffset":0}',
}
"""Bodies of a Java broker that stand nowhere above: by class and request codes."""
