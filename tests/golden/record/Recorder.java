import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Produces and consumes what one recorded store is to hold: {@code Recorder NAME_SERVER OUTPUT_FOLDER SCENARIO ARGUMENT...}.
 *
 * <p>Appends to {@code produced.tsv} what each send got (label, status, unique key, offset message id, topic, queue,
 * queue offset, keys, tags) and writes what each consumer got to {@code consumed-GROUP.tsv} (unique key, topic, queue,
 * queue offset, reconsume times). Run from source by record.py.
 */
public final class Recorder {
    private static final long DEADLINE_MILLIS = 60_000;
    private final String nameServer;
    private final Path output;
    private final DefaultMQProducer producer;
    private final DefaultMQAdminExt admin;
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final Map<String, AtomicInteger> failed = new HashMap<>();

    private Recorder(String nameServer, Path output) throws Exception {
        this.nameServer = nameServer;
        this.output = output;
        producer = new DefaultMQProducer("PG_RECORD");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName("record");
        producer.setSendMsgTimeout(30_000);
        producer.start();
        admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("record-admin");
        admin.start();
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        Recorder recorder = new Recorder(arguments[0], Path.of(arguments[1]));
        switch (arguments[2]) {
            case "hosts" -> recorder.hosts(arguments[3], Boolean.parseBoolean(arguments[4]));
            case "queues" -> recorder.queues();
            case "ext" -> recorder.ext();
            case "filters" -> recorder.filters();
            case "ledger" -> recorder.ledger(arguments[3], "RMQ_SYS_TRANS_OP_HALF_TOPIC");
            case "tier" -> recorder.tier(arguments[3]);
            case "rocksdb" -> recorder.rocksdb(arguments[3], arguments[4]);
            case "nothing" -> { }
            default -> throw new IllegalArgumentException("no scenario " + arguments[2]);
        }
        recorder.consumers.forEach(DefaultMQPushConsumer::shutdown);
        recorder.producer.shutdown();
        recorder.admin.shutdown();
    }

    /** Born and store hosts of both families; with {@code retries} also retry topics of the longest names. */
    private void hosts(String stage, boolean retries) throws Exception {
        createTopic("HostsTopic", 2, Map.of());
        send(stage + "-plain", message("HostsTopic", "TagA", stage + "-k1", "plain " + stage), 0);
        send(stage + "-keys", message("HostsTopic", "TagB", stage + "-k1 shared 订单", "keys " + stage), 1);
        send(stage + "-bare", new Message("HostsTopic", bytes("bare " + stage)), 0);
        send(stage + "-tiny", message("HostsTopic", "TagA", stage + "-tiny", "x"), 1);
        for (CompressionType type : CompressionType.values()) {
            producer.setCompressMsgBodyOverHowmuch(1);
            producer.setCompressType(type);
            String body = ("compress me " + type + " ").repeat(40);
            send(stage + "-" + type, message("HostsTopic", "TagC", stage + "-" + type, body), 0);
        }
        producer.setCompressMsgBodyOverHowmuch(4096);
        sendBatch(stage + "-batch", "HostsTopic", 3, 1);
        if (retries) {
            retries("HostsTopic", "CG_HOSTS_");
        }
    }

    /** Inner batches in a BatchCQ topic, light queues, arbitrary delays, and V2 records by a long retry topic. */
    private void queues() throws Exception {
        createTopic("BatchCqTopic", 2, Map.of("+queue.type", "BatchCQ"));
        for (int count : new int[] {3, 1, 5, 10, 2}) {
            sendBatch("inner-batch-" + count, "BatchCqTopic", count, count % 2);
        }
        send("inner-single", message("BatchCqTopic", "TagA", "single-in-batch-topic", "no batch"), 0);
        sendBatch("inner-batch-last", "BatchCqTopic", 4, 0);

        lights(Map.of());
        createTopic("TimerTopic", 2, Map.of());
        List<String> due = timers();
        createTopic("DelayTopic", 2, Map.of());
        Message delayed = message("DelayTopic", "TagE", "delay-level", "level 1");
        delayed.setDelayTimeLevel(1);
        send("delay-level", delayed, 0);
        retries("LightParent", "CG_QUEUES_");
        waitForTimers(due);
    }

    private List<String> timers() throws Exception {
        long now = System.currentTimeMillis();
        List<String> due = new ArrayList<>();
        due.add(timer("timer-delay-sec", message -> message.setDelayTimeSec(2)));
        due.add(timer("timer-delay-ms", message -> message.setDelayTimeMs(2_500)));
        due.add(timer("timer-deliver-ms", message -> message.setDeliverTimeMs((now / 1000 + 4) * 1000)));
        due.add(timer("timer-past", message -> message.setDeliverTimeMs(now - 1000)));
        timer("timer-far", message -> message.setDelayTimeSec(86_400));
        long target = now + 6_000;
        String cancelled = timer("timer-cancelled", message -> message.setDeliverTimeMs(target));
        timer("timer-cancel", message -> {
            message.setDeliverTimeMs(target);
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_TIMER_DEL_UNIQKEY, cancelled);
        });
        due.add(timer("timer-after-cancel", message -> message.setDeliverTimeMs(target + 2_000)));
        return due;
    }

    private String timer(String label, Consumer<Message> delay) throws Exception {
        Message message = message("TimerTopic", "TagT", label, label);
        delay.accept(message);
        return send(label, message, 1).getMsgId();
    }

    /** Messages of a topic that are in one, two or no light queues besides. */
    private void lights(Map<String, String> attributes) throws Exception {
        createTopic("LightParent", 2, attributes);
        for (int number = 0; number < 12; number++) {
            Message message = message("LightParent", number % 3 == 0 ? "TagA" : "TagB", "light-" + number % 4, "light " + number);
            String names = number % 2 == 0 ? "%LMQ%alpha" : "%LMQ%alpha,%LMQ%beta";
            names = number == 11 ? "%LMQ%gamma" : names;
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_INNER_MULTI_DISPATCH, names);
            send("light-" + number, message, number % 2);
        }
        send("light-none", message("LightParent", "TagA", "light-none", "in no light queue"), 0);
    }

    private void waitForTimers(List<String> due) throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer("CG_TIMER", "TimerTopic", MessageSelector.byTag("*"), message -> seen.add(message.getMsgId()));
        waitUntil("timer messages", () -> seen.containsAll(due));
    }

    /** Bitmaps of SQL consumers in ConsumeQueueExt; the broker's options add property CRCs and a second log folder. */
    private void ext() throws Exception {
        createTopic("ExtTopic", 2, Map.of());
        createTopic("ExtPlain", 1, Map.of());
        AtomicInteger matched = new AtomicInteger();
        String[][] groups = {
            {"CG_SQL_RANGE", "a > 10 AND a <= 30"},
            {"CG_SQL_REGION", "region = 'hz' OR region IS NULL"},
            {"CG_SQL_TAG", "TAGS IN ('TagA', 'Aa') AND price BETWEEN 1.5 AND 9.0"},
            {"CG_SQL_NONE", "missing = 'x'"},
        };
        for (String[] group : groups) {
            consumer(group[0], "ExtTopic", MessageSelector.bySql(group[1]), message -> matched.incrementAndGet());
        }
        String[] tags = {"TagA", "TagB", "Aa", "BB"};
        for (int number = 0; number < 100; number++) {
            Message message = message("ExtTopic", tags[number % 4], "ext-" + number % 10 + " all", "ext body " + "x".repeat(number));
            message.putUserProperty("a", String.valueOf(number));
            message.putUserProperty("price", String.valueOf(number * 0.25));
            if (number % 3 != 0) {
                message.putUserProperty("region", number % 3 == 1 ? "hz" : "bj");
            }
            send("ext-" + number, message, number % 2);
        }
        send("ext-untagged", message("ExtTopic", null, "untagged", "no tag"), 0);
        for (int number = 0; number < 20; number++) {
            send("plain-" + number, message("ExtPlain", "TagP", "plain-" + number % 5, "plain " + number), 0);
        }
        sendBatch("ext-batch", "ExtTopic", 4, 1);
        Message delayed = message("ExtPlain", "TagE", "delay-level", "level 1");
        delayed.setDelayTimeLevel(1);
        String identity = send("delay-level", delayed, 0).getMsgId();
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer("CG_TAG", "ExtPlain", MessageSelector.byTag("TagE"), message -> seen.add(message.getMsgId()));
        waitUntil("the delayed message", () -> seen.contains(identity));
        waitUntil("20 in the range, 72 of the region, 16 of the tags", () -> matched.get() == 108);
    }

    /**
     * Bitmaps of a thousand messages: of filters that let 1 %, 10 % and half of them through, of one that is registered
     * late and one that changes. And messages that were consumed in vain, with the filters of their groups.
     */
    private void filters() throws Exception {
        createTopic("FilterTopic", 2, Map.of());
        Map<String, AtomicInteger> matched = new HashMap<>();
        String few = "a = 7 AND region IN ('hz', 'bj')";
        matched.put("CG_ONE_PERCENT", new AtomicInteger());
        consumer("CG_ONE_PERCENT", "FilterTopic", MessageSelector.bySql(few),
            message -> matched.get("CG_ONE_PERCENT").incrementAndGet());
        counting(matched, "CG_TENTH", "a BETWEEN 20 AND 29");
        counting(matched, "CG_HALF", "a >= 50");
        counting(matched, "CG_NONE", "missing = 'x'");
        DefaultMQPushConsumer changes = counting(matched, "CG_CHANGES", "a < 20");
        failing("FilterTopic", "CG_FAILS", MessageSelector.bySql("a = 7"));
        number(0, 500);
        waitUntil("messages before the change", () -> matched.get("CG_CHANGES").get() == 100);
        changes.shutdown();
        counting(matched, "CG_CHANGES", "a >= 95");
        counting(matched, "CG_LATE", "a = 3 OR a = 4");
        number(500, 1000);

        createTopic("FailTopic", 1, Map.of());
        failing("FailTopic", "CG_TAG_FAILS", MessageSelector.byTag("*"));
        for (String number : new String[] {"1", "200", null}) {
            Message message = message("FailTopic", "TagA", "fail", "fail " + number);
            if (number != null) {
                message.putUserProperty("a", number);
            }
            send("fail-" + number, message, 0);
        }
        Map<String, Integer> wanted = Map.of("CG_ONE_PERCENT", 10, "CG_TENTH", 100, "CG_HALF", 500, "CG_NONE", 0,
            "CG_CHANGES", 125, "CG_LATE", 20, "CG_FAILS", 10, "CG_TAG_FAILS", 3);
        failed.keySet().forEach(group -> matched.put(group, failed.get(group)));
        waitUntil("all filtered messages", () ->
            wanted.keySet().stream().allMatch(group -> matched.get(group).get() >= wanted.get(group)));
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        // As if failed to consume: one that the filter of the topic it names lets not through, one of a topic without a
        // filter, and one that does not say from which topic it comes.
        for (String topic : new String[] {"FilterTopic", "NoSuchTopic", null}) {
            Message again = message("%RETRY%CG_FAILS", "TagA", "retry", "never failed");
            again.putUserProperty("a", "8");
            if (topic != null) {
                MessageAccessor.putProperty(again, MessageConst.PROPERTY_RETRY_TOPIC, topic);
            }
            send("retry-" + topic, again, 0);
        }
    }

    /**
     * Some messages of every kind, for a broker whose log is DLedger's, or will be: plain ones with tags and several keys,
     * a batch, a delay level, a timer, a committed and a rolled-back transaction, failed consumption. Labels and keys
     * begin with {@code stage}.
     */
    private void ledger(String stage, String notes) throws Exception {
        waitUntil("a broker that may be written to", () -> {
            try {
                return admin.examineBrokerClusterInfo().getBrokerAddrTable().get("broker-a").getBrokerAddrs().containsKey(0L);
            } catch (Exception notYet) {
                return false;
            }
        });
        createTopic("LedgerTopic", 2, Map.of());
        String[] tags = {"TagA", "TagB", "Aa", "BB"};
        for (int number = 0; number < 60; number++) {
            Message message = message("LedgerTopic", tags[number % 4], stage + "-" + number + " shared " + stage,
                stage + " " + number + " " + "x".repeat(number * 7));
            message.putUserProperty("a", String.valueOf(number));
            send(stage + "-" + number, message, number % 2);
        }
        send(stage + "-bare", new Message("LedgerTopic", bytes("bare " + stage)), 0);
        sendBatch(stage + "-batch", "LedgerTopic", 5, 1);
        transactions(stage, notes);
        createTopic("LedgerDelay", 1, Map.of());
        List<String> due = new ArrayList<>();
        Message delayed = message("LedgerDelay", "TagE", stage + "-level", "level 1");
        delayed.setDelayTimeLevel(1);
        due.add(send(stage + "-level", delayed, 0).getMsgId());
        Message timer = message("LedgerDelay", "TagE", stage + "-timer", "in two seconds");
        timer.setDelayTimeSec(2);
        due.add(send(stage + "-timer", timer, 0).getMsgId());
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer("CG_LEDGER_" + stage, "LedgerDelay", MessageSelector.byTag("*"), message -> seen.add(message.getMsgId()));
        waitUntil("delayed messages", () -> seen.containsAll(due));
        createTopic("LedgerFails", 1, Map.of());
        send(stage + "-fails", message("LedgerFails", "TagA", stage + "-fails", "in vain"), 0);
        failingConsumer("LedgerFails", "CG_FAILS_" + stage, 2);
    }

    /** Messages of two queues and of a topic that only this stage has; the older stage has most, and a delayed one. */
    private void tier(String stage) throws Exception {
        createTopic("TierTopic", 2, Map.of());
        String[] tags = {"TagA", "TagB", "Aa", "BB"};
        int count = stage.equals("old") ? 100 : 30;
        for (int number = 0; number < count; number++) {
            Message message = message("TierTopic", tags[number % 4], stage + "-" + number + " shared " + stage,
                stage + " " + number + " " + "x".repeat(number % 50 * 7));
            message.putUserProperty("a", String.valueOf(number));
            send(stage + "-" + number, message, number % 2);
        }
        send(stage + "-bare", new Message("TierTopic", bytes("bare " + stage)), 0);
        sendBatch(stage + "-batch", "TierTopic", 5, 1);
        createTopic("Tier-" + stage, 1, Map.of());
        for (int number = 0; number < 3; number++) {
            send(stage + "-own-" + number, message("Tier-" + stage, "TagO", stage + "-own-" + number, "own " + number), 0);
        }
        if (!stage.equals("old")) {
            return;
        }
        createTopic("TierDelay", 1, Map.of());
        Message delayed = message("TierDelay", "TagE", stage + "-level", "level 1");
        delayed.setDelayTimeLevel(1);
        String due = send(stage + "-level", delayed, 0).getMsgId();
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer("CG_TIER", "TierDelay", MessageSelector.byTag("*"), message -> seen.add(message.getMsgId()));
        waitUntil("the delayed message", () -> seen.contains(due));
        for (int number = 0; number < 40; number++) {
            send(stage + "-last-" + number, message("TierTopic", "TagB", stage + "-last-" + number, "y".repeat(600)), number % 2);
        }
    }

    /**
     * What a broker keeps whose queues and configuration are in RocksDB: messages of every kind, light queues, groups with
     * committed offsets. {@code notes} is the topic in which it notes the ends of transactions.
     */
    private void rocksdb(String stage, String notes) throws Exception {
        ledger(stage, notes);
        // Of the queues that are written twice by choice, only those of such topics are.
        lights(stage.equals("selective") ? Map.of("+message.type", "LITE") : Map.of());
    }

    /** A transaction that is committed and one that is rolled back, each followed by what the broker notes of it. */
    private void transactions(String stage, String topicOfNotes) throws Exception {
        createTopic("LedgerTransactions", 1, Map.of());
        TransactionMQProducer transactional = new TransactionMQProducer("PG_TRANSACTIONS");
        transactional.setNamesrvAddr(nameServer);
        transactional.setInstanceName("record-transactions");
        transactional.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
                return (LocalTransactionState) outcome;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.UNKNOW;
            }
        });
        transactional.start();
        MessageQueue notes = new MessageQueue(topicOfNotes, "broker-a", 0);
        String address = admin.examineBrokerClusterInfo().getBrokerAddrTable().get("broker-a").selectBrokerAddr();
        LocalTransactionState[] outcomes = {LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE};
        for (LocalTransactionState outcome : outcomes) {
            long before = notes(address, notes);
            Message message = message("LedgerTransactions", "TagT", stage + "-" + outcome, outcome + " " + stage);
            transactional.sendMessageInTransaction(message, outcome);
            waitUntil("the note of " + outcome, () -> notes(address, notes) > before);
        }
        transactional.shutdown();
    }

    private long notes(String address, MessageQueue notes) {
        try {
            return producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl().getMaxOffset(address, notes, 10_000);
        } catch (Exception notYet) {
            return 0;
        }
    }

    private void number(int from, int to) throws Exception {
        String[] tags = {"TagA", "TagB", "Aa", "BB"};
        for (int number = from; number < to; number++) {
            Message message = message("FilterTopic", tags[number % 4], "n" + number, "message " + number);
            message.putUserProperty("a", String.valueOf(number % 100));
            message.putUserProperty("region", number % 2 == 0 ? "hz" : "bj");
            if (producer.send(message, new MessageQueue("FilterTopic", "broker-a", number % 2)).getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException("message " + number + " was not stored");
            }
        }
    }

    private DefaultMQPushConsumer counting(Map<String, AtomicInteger> matched, String group, String expression) throws Exception {
        AtomicInteger count = matched.computeIfAbsent(group, name -> new AtomicInteger());
        return start(group, "FilterTopic", MessageSelector.bySql(expression), -1, (messages, context) -> {
            count.incrementAndGet();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    /** Consumes each message in vain once, and counts those that came again. */
    private void failing(String topic, String group, MessageSelector selector) throws Exception {
        AtomicInteger again = failed.computeIfAbsent(group, name -> new AtomicInteger());
        start(group, topic, selector, -1, (messages, context) -> {
            if (messages.get(0).getReconsumeTimes() == 0) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            consumed(group, messages.get(0));
            again.incrementAndGet();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    private void createTopic(String topic, int queues, Map<String, String> attributes) throws Exception {
        TopicConfig configuration = new TopicConfig(topic, queues, queues, 6);
        configuration.setAttributes(new HashMap<>(attributes));
        for (String address : admin.examineBrokerClusterInfo().getBrokerAddrTable().get("broker-a").getBrokerAddrs().values()) {
            admin.createAndUpdateTopicConfig(address, configuration);
        }
        waitUntil("a route of " + topic, () -> {
            try {
                return !producer.fetchPublishMessageQueues(topic).isEmpty();
            } catch (Exception notYet) {
                return false;
            }
        });
    }

    private static Message message(String topic, String tag, String keys, String body) {
        return new Message(topic, tag, keys, bytes(body));
    }

    private SendResult send(String label, Message message, int queue) throws Exception {
        SendResult result = producer.send(message, new MessageQueue(message.getTopic(), "broker-a", queue));
        report(label, result, message.getKeys(), message.getTags());
        return result;
    }

    private void sendBatch(String label, String topic, int count, int queue) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            messages.add(message(topic, "TagBatch", label + "-" + number + " " + label, "batch body " + number));
        }
        report(label, producer.send(messages, new MessageQueue(topic, "broker-a", queue)), null, null);
    }

    private void report(String label, SendResult result, String keys, String tags) throws IOException {
        MessageQueue queue = result.getMessageQueue();
        Object[] columns = {label, result.getSendStatus(), result.getMsgId(), result.getOffsetMsgId(), queue.getTopic(),
            queue.getQueueId(), result.getQueueOffset(), keys, tags};
        append("produced.tsv", columns);
    }

    private void append(String file, Object... columns) throws IOException {
        List<String> texts = Arrays.stream(columns).map(String::valueOf).toList();
        Files.writeString(output.resolve(file), String.join("\t", texts) + "\n", StandardCharsets.UTF_8,
            StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private DefaultMQPushConsumer consumer(String group, String topic, MessageSelector selector, Consumer<MessageExt> seen)
        throws Exception {
        return start(group, topic, selector, -1, (messages, context) -> {
            for (MessageExt message : messages) {
                consumed(group, message);
                seen.accept(message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    /** Consumes one message that fails each time until it lies in the retry topic {@code times} times. */
    private void failingConsumer(String topic, String group, int times) throws Exception {
        ConcurrentLinkedQueue<Integer> seen = new ConcurrentLinkedQueue<>();
        start(group, topic, MessageSelector.byTag("TagA"), times, (messages, context) -> {
            for (MessageExt message : messages) {
                consumed(group, message);
                seen.add(message.getReconsumeTimes());
            }
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        waitUntil("retries of " + group, () -> seen.contains(times));
    }

    /**
     * The retry topic of the longest group, 127 bytes, the most that a V1 record can name; and V2 records in the retry
     * topics of POP, named by group and topic: 128 bytes, the least that needs V2, and 255, the most there can be.
     */
    private void retries(String topic, String prefix) throws Exception {
        failingConsumer(topic, filled(prefix, 120), 2);
        popWithoutAck(filled(prefix + "Pop", 60), filled(prefix + "PopTopic", 60));
        popWithoutAck(filled(prefix + "Pop", 120), filled(prefix + "PopTopic", 127));
    }

    /** Pops two messages and never acknowledges them: the broker moves them to the retry topic of group and topic. */
    @SuppressWarnings("deprecation")
    private void popWithoutAck(String group, String topic) throws Exception {
        createTopic(topic, 1, Map.of());
        for (int number = 0; number < 2; number++) {
            send("pop-" + topic.length() + "-" + number, message(topic, "TagP", "pop-" + number + " pop", "pop " + number), 0);
        }
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(0);
        header.setMaxMsgNums(2);
        header.setInvisibleTime(1_000);
        header.setPollTime(0);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(ConsumeInitMode.MIN);
        CompletableFuture<PopResult> popped = new CompletableFuture<>();
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        String address = client.findBrokerAddressInPublish("broker-a");
        client.getMQClientAPIImpl().popMessageAsync("broker-a", address, header, 10_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                popped.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                popped.completeExceptionally(failure);
            }
        });
        if (popped.get().getMsgFoundList().size() != 2) {
            throw new IllegalStateException("popped " + popped.get());
        }
        MessageQueue retries = new MessageQueue("%RETRY%" + group + "_" + topic, "broker-a", 0);
        waitUntil("revived messages of " + topic, () -> {
            try {
                return client.getMQClientAPIImpl().getMaxOffset(address, retries, 10_000) == 2;
            } catch (Exception notYet) {
                return false;
            }
        });
    }

    private DefaultMQPushConsumer start(String group, String topic, MessageSelector selector, int retries,
        MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(retries);
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener(listener);
        consumer.start();
        consumers.add(consumer);
        return consumer;
    }

    private synchronized void consumed(String group, MessageExt message) {
        try {
            append("consumed-" + group.replaceAll("_x+$", "") + ".tsv", message.getMsgId(), message.getTopic(), message.getQueueId(),
                message.getQueueOffset(), message.getReconsumeTimes());
        } catch (IOException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static void waitUntil(String what, BooleanSupplier condition) throws InterruptedException {
        long deadline = System.currentTimeMillis() + DEADLINE_MILLIS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("waited in vain for " + what);
            }
            Thread.sleep(50);
        }
    }

    private static String filled(String prefix, int length) {
        return prefix + "x".repeat(length - prefix.length());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
