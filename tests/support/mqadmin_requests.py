"""What the commands of mqadmin send and need, as they were run: tables of remoting-protocol §2 in the site.

Numbers are request codes; `ns` is the name server, `->` what follows, [R] what was run and not only read.
"""

from prose import rows

MESSAGE_QUERIES = rows("""
`queryMsgById` ‖ `-i [-t, 5.3.0+] [-c, 5.3.1+]` ‖ §8.2, then track ‖
… with `-g G -d clientId` ‖  ‖ ns 105 (`%RETRY%G`), 307 to broker, then 309 CONSUME_MESSAGE_DIRECTLY to
  `msg.storeHost` ‖ a query broker without that client answers both with 1 `The Consumer <G> <c> not online`
… with `-s true [-u unit]` ‖  ‖ fetches the message, then a producer (group `ReSendMsgById`) **sends** it: 105 + 310 ‖
  refuse (3.6). `-u` only sets the producer's unit name (→ ns address suffix)
`queryMsgByUniqueKey` ‖ `-i -t [-a] [-c, 5.3.1+] [-s -e, 5.4+] [-g -d]` ‖ 105 topic; **12** unique=true, maxNum 32,
  begin 0, end MAX. **5.4.0/5.5.0: default begin/end = now ∓ 36 h**; only `-s` and `-e` together override. `-a` prints
  all matches ‖ 208 when nothing; `-g -d` as above
`queryMsgByKey` ‖ ≤5.1: `-t -k`; 5.2: + `-b -e -c`; 5.3.1+: + `-m`; 5.4+: `-p K|T -l lastKey` ‖ 105; **12**
  unique=false, maxNum 64 (or -m), begin 0 / end MAX (or -b/-e) ‖ table `#Message ID #QID #Offset` (5.5: `#IndexKey`).
  ID column = UNIQ_KEY
`queryMsgByOffset` ‖ `-t -b brokerName -i queueId -o offset [-f 5.x]` ‖ pull consumer `TOOLS_CONSUMER`; 105; **11**
  maxMsgNums 1, sysFlag 4 (no suspend), then track ‖ anything but FOUND prints nothing at all
`queryMsgTraceById` ‖ `-i msgId [-t traceTopic] [-b -e] [-c maxNum]` ‖ 105 on `RMQ_SYS_TRACE_TOPIC` (or -t); **12**
  key = msgId, unique=false, maxNum 64; client parses trace bodies ‖ trace topic must have a route, else 17 [R]
`printMsg` ‖ `-t [-s subExpr] [-c charset] [-b -e ts] [-l lmqParent 5.x] [-d printBody]` ‖ 105 twice; per queue 31, 30
  (29 when -b/-e), then **11** (maxMsgNums 32, no suspend, timeout 10 s) until end ‖ stops a queue on NO_NEW_MSG /
  OFFSET_ILLEGAL; continues on NO_MATCHED
`printMsgByQueue` ‖ `-t -a brokerName -i queueId [-s -b -e -c -p print -d -f]` ‖ 105, 31, 30 (29), 11 … ‖ **NO_MATCHED
  also stops it**: with `-s TagX` scan ahead to the next match rather than answer 20. Without `-p true` prints nothing
`consumeMessage` ‖ `-t [-b -i -o -c count -s -e]` ‖ 105, 31, 30 or 29, then 11 repeatedly ‖ loops while offset ≤ max;
  a NO_MATCHED whose nextBeginOffset does not advance = **endless loop**
`sendMsgStatus`, `checkMsgSendRT`, `clusterRT`, `sendMessage` ‖  ‖ **write** (310); refuse with 16 ‖
""")
"""Command, options, requests in order, and what is printed, also of an error."""

OTHER_COMMANDS = rows("""
`topicList` ‖ ns 206 ‖ `{"topicList":[…]}`. `-c`: ns 106, 206, per topic 105, (105 + broker 300 when it is not
  retry/DLQ); failures leave blanks
`topicRoute -t [-l]` ‖ ns 105 ‖ pretty JSON; `-l` table needs queueData for each broker name
`topicStatus -t [-c]` ‖ ns 105; per brokerData addr 202; 5.0+: 351 (`lo=true`) ‖ 351 → 17 tolerated, **any other error
  aborts**. Empty offsetTable → MQClientException `Not found the topic stats info`. `-c` (LMQ): 105 of the `-c` value,
  202 only
`topicClusterList -t` ‖ ns 106, 105 ‖ prints cluster names of brokerDatas[0]
`clusterList [-m] [-i sec]` ‖ ns 106, per broker addr **28** ‖ keys in 2.3. A missing key may NPE → stack printed, row
  missing or zero
`brokerStatus -b | -c` ‖ 28 (`-c`: 106 + 28 per addr) ‖ prints the sorted KV table
`brokerConsumeStats -b [-o isOrder] [-t ms] [-l level]` ‖ 317 (`isOrder`) ‖ ConsumeStatsList; header + `Diff Total: n`
  even when empty
`consumerProgress` (no -g) ‖ ns 206; for each topic that starts with `%RETRY%`: 105, 208, 203 ‖ groups are discovered
  **only through %RETRY% topics in the topic list**
`consumerProgress -g G [-t T] [-s true] [-c LMQ parent]` ‖ 105 on `%RETRY%G` (else T, else pop retry topic, else -c);
  208 per broker (timeout 15 s); 5.0+ without -c: per topic in the result 105 + 351 ‖ **every topic in the 208 result
  must be routable** and its 351 be 0 or 17. Empty table → 203 → error 206 or 213. `-s true` also needs 203 + 307.
  Diff = brokerOffset − consumerOffset, Inflight = **pullOffset − consumerOffset** (send pullOffset = consumerOffset,
  else negative numbers [R]), lastTimestamp 0 → `N/A`
`consumerStatus -g [-b] [-s] [-i clientId]` ‖ 105 `%RETRY%G`, 203, per client 307 ‖ 206 aborts
`consumerConnection -g [-b]` ‖ 105 `%RETRY%G`, 203 (or 203 straight to -b) ‖ empty connectionSet → client-made 206
`producerConnection -g -t` ‖ 105 topic, 204 ‖ real broker: 1 `the producer group[<g>] not exist`
`producer -b` ‖ 328 ‖ `{"data":{}}` prints nothing [R]
`getConsumerConfig -g` ‖ ns 106, 201 per master ‖ prints each broker whose table has the group
`getBrokerConfig -b | -c` ‖ 26 (never VIP) ; `-c`: 106 + 26 masters and slaves ‖ body = Java properties text; ext
  `version` is optional
`queryCq -t -q -i [-c 10] [-b] [-g]` ‖ [105]; 321 ‖ code 0 must have a body (QueryConsumeQueueResponseBody). No queue:
  1 `<q>@<t> is not exist!`
`statsAll [-a] [-t]` ‖ ns 206; per topic 105, 300 (105), **315** TOPIC_PUT_NUMS; per group 315 GROUP_GET_NUMS + 208 ‖
  315 errors ignored; `NO_CONSUMER` row when no group [R]
`allocateMQ -t -i ip,ip` ‖ 105 ‖
`haStatus -b | -c` ‖ 907 (5.0+) ‖ else 1
`getBrokerEpoch -c [-b]` ‖ 106 + 1007 ‖ non-controller broker: 1 `this request only for controllerMode `
`getSyncStateSet`, `getControllerMetaData`, `getControllerConfig -a` ‖ 1005 then 1006; 1005; 1010, to the
  **controller** ‖ RocketLens answers 3
`exportMetadata -b|-c [-t][-g] -f dir` ‖ 106; 21 (paged), 305, 201 (paged) per master ‖ `-t` only topics, `-g` only
  groups
`exportConfigs -c -f` ‖ 106; 26 per master ‖ needs `brokerName`. **≤4.9.x NPE unless all 16 keys of 2.3 exist** [R]
`exportMetrics -c -f` ‖ 106; per master 28, 26, 201, [105+203 per group], 21, 305, 315 ×n ‖ 28 must contain the
  msg*Total* keys as integers (Long.parseLong) or NumberFormatException
`getColdDataFlowCtrInfo -b|-c` ‖ 2003 ‖ JSON text body
`checkRocksdbCqWriteProgress -c [-t] [-cf from]` (5.3.1+) ‖ 106; 354 ‖ body `{"checkResult":"…","checkStatus":0}`;
  answer 3 is printed as failure
`rocksDBConfigToJson`; `dumpCompactionLog`, `exportMetadataInRocksDB`; `exportPopRecord` ‖ local, or 355 with
  `-b`/`-c`; **local only**; 106 + 200056 (writes) ‖
`getNamesrvConfig -n` ‖ 319 to every listed ns ‖ properties text
`getUser/listUser/getAcl/listAcl` ‖ 3004/3005/3009/3010 to broker(s) (`-b` or `-c`) ‖ JSON list bodies; 3 when ACL 2.0
  is absent
`startMonitoring` ‖ 206, 208, 203, … periodically ‖
`cloneGroupOffset` ‖ 105 ×2, 208 on source, then 15 (**write**, sync call) ‖ would report success although 15 is kept
  in memory only (3.2): refuse 15 with 16 when the group has no live consumer (do not key this on the TCP channel:
  with VIP on, 15 and 34 come over different connections)
`resetOffsetByTime`, `skipAccumulatedMessage`; update*/delete*/wipe*/clean*/create* ‖ 105, 222 (old clients 208, 29,
  15); write codes ‖ refuse with 16
5.5.0 `get…Lite…` 200074–200078, `triggerLiteDispatch` 200079, `switchTimerEngine` 5001; 4.9.x ACL 1.0: 50–53 ‖ broker
  ‖ answer 3
""")
"""Command, requests, and what they need, or what an error does."""
