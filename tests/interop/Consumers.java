import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Consumers that run beside each other and keep what they received until they are asked; commands come from Harness. */
@SuppressWarnings("deprecation")
final class Consumers {
    private static final long WAIT_AT_SHUTDOWN_MILLIS = 10_000;
    private final Map<String, Consumer> running = new ConcurrentHashMap<>();

    /**
     * What a listener did so far. It takes messages up to its limit. What comes beyond it refuses, so that it is to come
     * again, or holds, with the thread that brought it, until the limit is raised or the consumer has ended.
     */
    private static final class Log {
        private final List<Map<String, Object>> received = new ArrayList<>();
        private final Map<String, Integer> refused = new TreeMap<>();
        private final boolean holds;
        private long limit;
        private boolean ended;

        Log(long limit, boolean holds) {
            this.limit = limit;
            this.holds = holds;
        }

        synchronized boolean accept(MessageExt message) {
            try {
                while (holds && !ended && received.size() >= limit) {
                    wait();
                }
                if (!ended && received.size() < limit) {
                    received.add(Harness.describe(message));
                    return true;
                }
            } catch (Exception failure) {
                throw new IllegalStateException(failure);
            }
            refused.merge(message.getQueueId() + " " + message.getQueueOffset(), 1, Integer::sum);
            return false;
        }

        synchronized void limit(long newLimit) {
            limit = newLimit;
            notifyAll();
        }

        synchronized void end() {
            ended = true;
            notifyAll();
        }

        synchronized JSONObject describe() {
            JSONObject described = new JSONObject();
            described.put("messages", new ArrayList<>(received));
            described.put("refused", new TreeMap<>(refused));
            return described;
        }
    }

    private interface Consumer {
        void start() throws Exception;

        void shutdown();

        /** The queues of the topic that the consumer holds. */
        Collection<MessageQueue> queues() throws Exception;

        Log log();

        default long offsetForTimestamp(int queueId, long timestamp) throws Exception {
            throw new IllegalArgumentException("only lite pull consumers search by time");
        }
    }

    private record Push(DefaultMQPushConsumer consumer, String topic, Log log) implements Consumer {
        static Push of(JSONObject options) throws Exception {
            RPCHook hook = options.containsKey("accessKey")
                ? new AclClientRPCHook(new SessionCredentials(options.getString("accessKey"), options.getString("secretKey")))
                : null;
            boolean holds = options.getBooleanValue("holds");
            Log log = new Log(options.getLongValue("limit"), holds);
            Push push = new Push(made(hook, options), options.getString("topic"), log);
            DefaultMQPushConsumer consumer = push.consumer;
            consumer.setConsumerGroup(options.getString("group"));
            consumer.setNamesrvAddr(options.getString("nameServer"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setAwaitTerminationMillisWhenShutdown(holds ? 0 : WAIT_AT_SHUTDOWN_MILLIS);
            consumer.setHeartbeatBrokerInterval(options.getIntValue("heartbeatMillis"));
            consumer.setPollNameServerInterval(options.getIntValue("routeMillis"));
            consumer.setPullThresholdForQueue(options.getIntValue("cached"));
            consumer.setPullBatchSize(Math.min(32, options.getIntValue("cached")));
            consumer.setConsumeThreadMin(4);
            consumer.setConsumeThreadMax(4);
            consumer.subscribe(push.topic, selector(options));
            if (!options.getBooleanValue("clientRebalance")) {
                DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
            }
            switch (options.getString("kind")) {
                case "push" -> consumer.setMessageListener(push.concurrently());
                case "orderly" -> consumer.setMessageListener(push.orderly());
                case "broadcasting" -> {
                    consumer.setMessageListener(push.concurrently());
                    consumer.setInstanceName(options.getString("name"));
                    setBroadcasting(consumer);
                }
                default -> throw new IllegalArgumentException("no consumer " + options);
            }
            return push;
        }

        private MessageListenerConcurrently concurrently() {
            return (messages, context) ->
                log.accept(messages.get(0)) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }

        private MessageListenerOrderly orderly() {
            return (messages, context) -> {
                context.setSuspendCurrentQueueTimeMillis(100);
                return log.accept(messages.get(0))
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            };
        }

        @Override
        public void start() throws Exception {
            consumer.start();
        }

        @Override
        public void shutdown() {
            consumer.shutdown();
        }

        @Override
        public Collection<MessageQueue> queues() {
            return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet();
        }
    }

    private record LitePull(DefaultLitePullConsumer consumer, Log log, Thread poller) implements Consumer {
        static LitePull of(JSONObject options) throws Exception {
            DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.getString("group"));
            consumer.setNamesrvAddr(options.getString("nameServer"));
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setHeartbeatBrokerInterval(options.getIntValue("heartbeatMillis"));
            consumer.setPollNameServerInterval(options.getIntValue("routeMillis"));
            consumer.subscribe(options.getString("topic"), selector(options));
            Log log = new Log(Long.MAX_VALUE, false);
            Thread poller = new Thread(() -> {
                while (!Thread.currentThread().isInterrupted()) {
                    consumer.poll(100).forEach(log::accept);
                }
            });
            return new LitePull(consumer, log, poller);
        }

        @Override
        public void start() throws Exception {
            consumer.start();
            poller.start();
        }

        @Override
        public void shutdown() {
            poller.interrupt();
            consumer.commitSync();
            consumer.shutdown();
        }

        @Override
        public Collection<MessageQueue> queues() throws Exception {
            return consumer.assignment();
        }

        @Override
        public long offsetForTimestamp(int queueId, long timestamp) throws Exception {
            for (MessageQueue queue : queues()) {
                if (queue.getQueueId() == queueId) {
                    return consumer.offsetForTimestamp(queue, timestamp);
                }
            }
            throw new IllegalArgumentException("no queue " + queueId + " among " + queues());
        }
    }

    private static MessageSelector selector(JSONObject options) {
        String expression = options.getString("expression");
        return switch (options.getString("expressionType")) {
            case "TAG" -> MessageSelector.byTag(expression);
            case "SQL92" -> MessageSelector.bySql(expression);
            default -> throw new IllegalArgumentException("no expression type " + options);
        };
    }

    /** The enumeration is in different packages in 4.9 and 5.x. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    /** A consumer that also sends traces of what it consumed, if it shall. */
    private static DefaultMQPushConsumer made(RPCHook hook, JSONObject options) {
        return options.getBooleanValue("traced")
            ? new DefaultMQPushConsumer(options.getString("group"), hook, new AllocateMessageQueueAveragely(), true, null)
            : new DefaultMQPushConsumer(hook);
    }

    private static void setBroadcasting(DefaultMQPushConsumer consumer) throws Exception {
        Class type = DefaultMQPushConsumer.class.getMethod("getMessageModel").getReturnType();
        DefaultMQPushConsumer.class.getMethod("setMessageModel", type).invoke(consumer, Enum.valueOf(type, "BROADCASTING"));
    }

    /** Starts consumers beside each other, by the name of each. */
    void start(List<JSONObject> all) throws Exception {
        together(all, options -> {
            Consumer consumer = options.getString("kind").equals("lite") ? LitePull.of(options) : Push.of(options);
            running.put(options.getString("name"), consumer);
            consumer.start();
            return null;
        });
    }

    /** What a consumer received and refused so far, and the queues that it holds. */
    JSONObject look(String name) throws Exception {
        Consumer consumer = running.get(name);
        JSONObject described = consumer.log().describe();
        List<String> queues = new ArrayList<>();
        for (MessageQueue queue : consumer.queues()) {
            queues.add(queue.getTopic() + " " + queue.getQueueId());
        }
        described.put("queues", queues);
        return described;
    }

    /** Lets a consumer take up to {@code limit} messages in all. */
    void limit(String name, long limit) {
        running.get(name).log().limit(limit);
    }

    /** The offset that a lite pull consumer finds for a time in one of the queues that it holds. */
    long offsetForTimestamp(String name, int queueId, long timestamp) throws Exception {
        return running.get(name).offsetForTimestamp(queueId, timestamp);
    }

    /** Shuts consumers down beside each other: what each received and refused by then. */
    Map<String, Object> end(List<String> names) throws Exception {
        Map<String, Object> ended = new ConcurrentHashMap<>();
        together(names, name -> {
            Consumer consumer = running.remove(name);
            consumer.shutdown();
            consumer.log().end();
            ended.put(name, consumer.log().describe());
            return null;
        });
        return ended;
    }

    /** For each queue of a topic what a pull consumer learns of it, as a line of the recorded {@code pull.txt}. */
    List<String> pull(JSONObject options) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.getString("group"));
        consumer.setNamesrvAddr(options.getString("nameServer"));
        consumer.start();
        try {
            List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(options.getString("topic")));
            queues.sort(null);
            List<String> lines = new ArrayList<>();
            for (MessageQueue queue : queues) {
                lines.add(pull(consumer, queue, options.getString("expression")));
            }
            return lines;
        } finally {
            consumer.shutdown();
        }
    }

    private static String pull(DefaultMQPullConsumer consumer, MessageQueue queue, String expression) throws Exception {
        long minimum = consumer.minOffset(queue);
        long maximum = consumer.maxOffset(queue);
        PullResult pulled = consumer.pull(queue, expression, minimum, 32);
        PullResult over = consumer.pull(queue, "*", maximum + 5, 32);
        PullResult at = consumer.pull(queue, "*", maximum, 32);
        long earliest = consumer.earliestMsgStoreTime(queue);
        int found = pulled.getMsgFoundList() == null ? 0 : pulled.getMsgFoundList().size();
        return String.format("PULL\t%d min=%d max=%d earliest=%d search=%d pulled=%s %d next=%d over=%s next=%d at=%s next=%d",
            queue.getQueueId(), minimum, maximum, earliest, consumer.searchOffset(queue, earliest + 1),
            pulled.getPullStatus(), found, pulled.getNextBeginOffset(), over.getPullStatus(), over.getNextBeginOffset(),
            at.getPullStatus(), at.getNextBeginOffset());
    }

    private interface Step<T> {
        Void of(T value) throws Exception;
    }

    private static <T> void together(List<T> values, Step<T> step) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(Math.max(1, values.size()));
        try {
            List<Callable<Void>> steps = new ArrayList<>();
            values.forEach(value -> steps.add(() -> step.of(value)));
            for (Future<Void> done : threads.invokeAll(steps)) {
                done.get();
            }
        } finally {
            threads.shutdown();
        }
    }
}
