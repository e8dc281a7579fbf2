import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Loads stores as a broker does that starts, one after the other, and says what its recovery left of each log: a line
 * "root segment-size queue-file-size batch-file-size slots entries" is answered "true or false, end of the log, segments".
 * A line "consume root" is answered with what a consumer gets of each queue of the store that was loaded last:
 * "topic/queue/minimum/maximum/place,place,..." with the physical offsets, as they come from the queue's beginning on.
 * At a line "clean" it does what a broker does a minute after its start: it deletes the files of queues all of whose
 * messages have expired, and a queue begins behind them. "times topic queue LOWER or UPPER time time ..." is answered
 * with the offset for each time, "pull topic queue offset maximum" with "status next minimum maximum place,place,...".
 * What 4.x does not have is looked up by name.
 */
public class RecoveryOracle {
    private static DefaultMessageStore store;
    private static String root;

    public static void main(String[] arguments) throws Exception {
        java.io.PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            for (String line = questions.readLine(); line != null; line = questions.readLine()) {
                answers.write((answer(line.split(" ")) + "\n").getBytes(StandardCharsets.UTF_8));
                answers.flush();
            }
        } catch (Throwable error) {
            error.printStackTrace();
        } finally {
            Runtime.getRuntime().halt(0);
        }
    }

    private static String answer(String[] question) throws Exception {
        try {
            switch (question[0]) {
                case "consume": return consume();
                case "clean": return clean();
                case "times": return times(question);
                case "pull": return pull(question);
                default: return load(question);
            }
        } catch (OutOfMemoryError error) {
            error.printStackTrace(); // of a record that says it has gigabytes: such a broker does not start
            return "false -1";
        }
    }

    private static void set(Object config, String name, Object value, Class<?> type) throws Exception {
        for (Method method : config.getClass().getMethods()) {
            if (method.getName().equals(name)) {
                config.getClass().getMethod(name, type).invoke(config, value);
            }
        }
    }

    /** The topics whose queues are of batches, which topics.json says to a whole broker. */
    private static ConcurrentHashMap<String, TopicConfig> topicsOfBatches(String root) throws Exception {
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        String[] names = new File(root, "batchconsumequeue").list();
        for (String name : names == null ? new String[0] : names) {
            TopicConfig topic = new TopicConfig(name);
            @SuppressWarnings("unchecked")
            Map<String, String> attributes = (Map<String, String>) TopicConfig.class.getMethod("getAttributes").invoke(topic);
            attributes.put("queue.type", "BatchCQ");
            topics.put(name, topic);
        }
        return topics;
    }

    private static DefaultMessageStore open(MessageStoreConfig config) throws Exception {
        BrokerConfig broker = new BrokerConfig();
        for (Constructor<?> constructor : DefaultMessageStore.class.getConstructors()) {
            if (constructor.getParameterCount() == 5) {
                return (DefaultMessageStore) constructor.newInstance(
                    config, new BrokerStatsManager(broker.getBrokerClusterName(), true), null, broker, topicsOfBatches(root));
            }
        }
        for (Constructor<?> constructor : DefaultMessageStore.class.getConstructors()) {
            if (constructor.getParameterCount() == 4) {
                return (DefaultMessageStore) constructor.newInstance(
                    config, new BrokerStatsManager(broker.getBrokerClusterName(), true), null, broker);
            }
        }
        throw new IllegalStateException("a message store is made in another way");
    }

    private static String load(String[] question) throws Exception {
        root = question[0];
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(question[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(question[2]));
        set(config, "setMapperFileSizeBatchConsumeQueue", Integer.parseInt(question[3]), int.class);
        config.setMaxHashSlotNum(Integer.parseInt(question[4]));
        config.setMaxIndexNum(Integer.parseInt(question[5]));
        config.setHaListenPort(0);
        // Each would leave some threads behind, and nothing here is compacted.
        set(config, "setEnableCompaction", false, boolean.class);
        store = open(config);
        boolean isLoaded = store.load();
        String[] names = new File(root, "commitlog").list();
        Arrays.sort(names);
        return isLoaded + " " + store.getMaxPhyOffset() + " " + String.join(",", names);
    }

    private static String clean() throws Exception {
        Object owner = store;
        for (Method method : DefaultMessageStore.class.getMethods()) {
            if (method.getName().equals("getQueueStore")) {
                owner = method.invoke(store);
            }
        }
        Field field = owner.getClass().getDeclaredField("cleanConsumeQueueService");
        field.setAccessible(true);
        Method run = field.getType().getMethod("run");
        run.setAccessible(true);
        run.invoke(field.get(owner));
        return "cleaned";
    }

    /** As a start ends: before that a store gives nothing away. */
    private static void open() throws Exception {
        Field field = DefaultMessageStore.class.getDeclaredField("shutdown");
        field.setAccessible(true);
        field.set(store, false);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static String times(String[] question) throws Exception {
        open();
        List<String> offsets = new ArrayList<>();
        for (Method method : DefaultMessageStore.class.getMethods()) {
            if (method.getName().equals("getOffsetInQueueByTime") && method.getParameterCount() == 4) {
                Object boundary = Enum.valueOf((Class<Enum>) method.getParameterTypes()[3], question[3]);
                for (int number = 4; number < question.length; number++) {
                    offsets.add(String.valueOf(method.invoke(
                        store, question[1], Integer.parseInt(question[2]), Long.parseLong(question[number]), boundary)));
                }
                return String.join(" ", offsets);
            }
        }
        return "";
    }

    private static String pull(String[] question) throws Exception {
        open();
        GetMessageResult result = store.getMessage("G", question[1], Integer.parseInt(question[2]),
            Long.parseLong(question[3]), Integer.parseInt(question[4]), null);
        List<String> places = new ArrayList<>();
        for (SelectMappedBufferResult each : result.getMessageMapedList()) {
            places.add(Long.toString(each.getByteBuffer().getLong(28)));
        }
        String found = result.getStatus() + " " + result.getNextBeginOffset() + " " + result.getMinOffset() + " "
            + result.getMaxOffset() + " " + String.join(",", places);
        result.release();
        return found;
    }

    private static String consume() throws Exception {
        open();
        List<String> queues = new ArrayList<>();
        for (String tree : new String[] {"consumequeue", "batchconsumequeue"}) {
            String[] topics = new File(root, tree).list();
            for (String topic : new TreeSet<>(Arrays.asList(topics == null ? new String[0] : topics))) {
                String[] ids = new File(root, tree + "/" + topic).list();
                for (String id : new TreeSet<>(Arrays.asList(ids == null ? new String[0] : ids))) {
                    if (id.matches("[0-9]{1,9}")) {
                        queues.add(consume(topic, Integer.parseInt(id)));
                    }
                }
            }
        }
        return String.join(" ", queues);
    }

    private static String consume(String topic, int queueId) throws Exception {
        long minimum = store.getMinOffsetInQueue(topic, queueId);
        long maximum = store.getMaxOffsetInQueue(topic, queueId);
        List<String> places = new ArrayList<>();
        for (long next = minimum; next < maximum;) {
            GetMessageResult result;
            try {
                result = store.getMessage("G", topic, queueId, next, 32, null);
            } catch (RuntimeException error) { // of a unit with a negative size: a consumer comes no further
                break;
            }
            if (result == null) {
                break;
            }
            for (SelectMappedBufferResult each : result.getMessageMapedList()) {
                if (each.getSize() >= 36) { // a unit of zeros leads to no bytes: a broker sends them, and no client sees a message
                    places.add(Long.toString(each.getByteBuffer().getLong(28)));
                }
            }
            long following = result.getNextBeginOffset();
            result.release();
            if (following <= next) {
                break;
            }
            next = following;
        }
        return topic + "/" + queueId + "/" + minimum + "/" + maximum + "/" + String.join(",", places);
    }
}
