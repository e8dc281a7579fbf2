import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Loads stores as a broker does that starts, one after the other, and says what its recovery left of each log: a line
 * "root segment-size queue-file-size batch-file-size slots entries" is answered "true or false, end of the log, segments".
 */
public class RecoveryOracle {
    public static void main(String[] arguments) throws Exception {
        java.io.PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            for (String line = questions.readLine(); line != null; line = questions.readLine()) {
                answers.println(answer(line.split(" ")));
                answers.flush();
            }
        } finally {
            Runtime.getRuntime().halt(0);
        }
    }

    /** The topics whose queues are of batches, which topics.json says to a whole broker. */
    private static ConcurrentHashMap<String, TopicConfig> topicsOfBatches(String root) {
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        String[] names = new File(root, "batchconsumequeue").list();
        for (String name : names == null ? new String[0] : names) {
            TopicConfig topic = new TopicConfig(name);
            topic.getAttributes().put("queue.type", "BatchCQ");
            topics.put(name, topic);
        }
        return topics;
    }

    private static String answer(String[] question) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(question[0]);
        config.setStorePathCommitLog(question[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(question[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(question[2]));
        config.setMapperFileSizeBatchConsumeQueue(Integer.parseInt(question[3]));
        config.setMaxHashSlotNum(Integer.parseInt(question[4]));
        config.setMaxIndexNum(Integer.parseInt(question[5]));
        config.setHaListenPort(0);
        config.setEnableCompaction(false); // each would leave some threads behind, and nothing here is compacted
        BrokerConfig broker = new BrokerConfig();
        DefaultMessageStore store = new DefaultMessageStore(
            config, new BrokerStatsManager(broker), null, broker, topicsOfBatches(question[0]));
        boolean isLoaded = store.load();
        String[] names = new File(question[0], "commitlog").list();
        Arrays.sort(names);
        return isLoaded + " " + store.getMaxPhyOffset() + " " + String.join(",", names);
    }
}
