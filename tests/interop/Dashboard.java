import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExtImpl;
import org.apache.rocketmq.tools.admin.api.MessageTrack;

/**
 * Asks as RocketMQ's dashboard does (remoting-protocol §3.7, §8.5), with the official client classes of 5.x: what its
 * pages ask for, in that order, by the port two lower that it takes by default. Commands come from Harness.
 */
@SuppressWarnings("deprecation")
final class Dashboard {
    private static final int MOST_PULLED = 2000;
    private static final int BATCH = 32;
    private static final int MOST_BY_KEY = 64;

    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(5000);
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("TOOLS_CONSUMER");
    private static final Map<String, Dashboard> OPEN = new HashMap<>();
    private JSONObject options;

    private Dashboard(JSONObject options) throws Exception {
        String instance = "dashboard-" + System.nanoTime();
        admin.setNamesrvAddr(options.getString("nameServer"));
        admin.setInstanceName(instance);
        admin.setVipChannelEnabled(true);
        admin.start();
        consumer.setNamesrvAddr(options.getString("nameServer"));
        consumer.setInstanceName(instance + "-pull");
        consumer.setVipChannelEnabled(true);
        consumer.start();
    }

    /** What one page shows; the clients behind it stay for the next one, until told to close. */
    static Object page(JSONObject options) throws Exception {
        String nameServer = options.getString("nameServer");
        if (!OPEN.containsKey(nameServer)) {
            OPEN.put(nameServer, new Dashboard(options));
        }
        Dashboard dashboard = OPEN.get(nameServer);
        dashboard.options = options;
        return switch (options.getString("page")) {
            case "messages of a topic" -> dashboard.ofTopic();
            case "message by key" -> dashboard.byKey();
            case "message by id" -> List.of(Harness.describe(dashboard.byId()));
            case "message detail" -> dashboard.track();
            case "topics" -> dashboard.topics();
            case "consumers" -> dashboard.consumers();
            case "cluster" -> dashboard.cluster();
            case "close" -> OPEN.remove(nameServer).close();
            default -> throw new IllegalArgumentException("no page " + options);
        };
    }

    private boolean close() {
        admin.shutdown();
        consumer.shutdown();
        return true;
    }

    private String topic() {
        return options.getString("topic");
    }

    /** The messages of a topic and a time (the page of a dead-letter topic too): all queues, pulled between offsets. */
    private List<Map<String, Object>> ofTopic() throws Exception {
        long begin = options.getLongValue("begin");
        long end = options.getLongValue("end");
        List<Map<String, Object>> found = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic())) {
            long first = consumer.searchOffset(queue, begin);
            long last = consumer.searchOffset(queue, end);
            while (first <= last && found.size() < MOST_PULLED) {
                PullResult pulled = consumer.pull(queue, "*", first, BATCH);
                if (pulled.getPullStatus() != PullStatus.FOUND) {
                    break;
                }
                first = pulled.getNextBeginOffset();
                for (MessageExt message : pulled.getMsgFoundList()) {
                    if (message.getStoreTimestamp() >= begin && message.getStoreTimestamp() <= end) {
                        found.add(Harness.describe(message));
                    }
                }
            }
        }
        return found;
    }

    /** By key, and the trace of a message by its id. */
    private List<Map<String, Object>> byKey() throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        QueryResult result = admin.queryMessage(topic(), options.getString("key"), MOST_BY_KEY, 0, System.currentTimeMillis());
        for (MessageExt message : result.getMessageList()) {
            found.add(Harness.describe(message));
        }
        return found;
    }

    /** By either kind of id: never from the address in it, but as a unique key in each cluster of the topic. */
    private MessageExt byId() throws Exception {
        ClusterInfo info = admin.examineBrokerClusterInfo();
        Set<String> clusters = new TreeSet<>();
        String first = admin.examineTopicRouteInfo(topic()).getBrokerDatas().get(0).getBrokerName();
        info.getClusterAddrTable().forEach((cluster, brokers) -> {
            if (brokers.contains(first)) {
                clusters.add(cluster);
            }
        });
        for (String cluster : clusters.isEmpty() ? Set.of("") : clusters) {
            QueryResult result = adminImpl().queryMessage(cluster, topic(), options.getString("id"), BATCH, 0, Long.MAX_VALUE, true);
            if (result != null && !result.getMessageList().isEmpty()) {
                return result.getMessageList().get(0);
            }
        }
        throw new IllegalStateException("no such message");
    }

    private MQAdminImpl adminImpl() throws Exception {
        var outer = DefaultMQAdminExt.class.getDeclaredField("defaultMQAdminExtImpl");
        outer.setAccessible(true);
        var inner = DefaultMQAdminExtImpl.class.getDeclaredField("mqClientInstance");
        inner.setAccessible(true);
        return ((MQClientInstance) inner.get(outer.get(admin))).getMQAdminImpl();
    }

    /** Who has consumed a message. */
    private Map<String, String> track() throws Exception {
        Map<String, String> tracks = new TreeMap<>();
        for (MessageTrack track : admin.messageTrackDetail(byId())) {
            tracks.put(track.getConsumerGroup(), String.valueOf(track.getTrackType()));
        }
        return tracks;
    }

    /** The list of topics, and one topic's offsets, route, configuration and groups. */
    private Map<String, Object> topics() throws Exception {
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("topics", new TreeSet<>(admin.fetchAllTopicList().getTopicList()));
        shown.put("messages", admin.examineTopicStats(topic()).getOffsetTable().values().stream()
            .mapToLong(offsets -> offsets.getMaxOffset() - offsets.getMinOffset()).sum());
        Map<String, Integer> queues = new TreeMap<>();
        for (BrokerData broker : admin.examineTopicRouteInfo(topic()).getBrokerDatas()) {
            queues.put(broker.getBrokerName(),
                admin.examineTopicConfig(broker.selectBrokerAddr(), topic()).getReadQueueNums());
        }
        shown.put("queues", queues);
        shown.put("groups", new TreeSet<>(admin.queryTopicConsumeByWho(topic()).getGroupList()));
        return shown;
    }

    /** All groups, and how far one of them is. */
    private Map<String, Object> consumers() throws Exception {
        Set<String> groups = new TreeSet<>();
        for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            groups.addAll(admin.getAllSubscriptionGroup(broker.selectBrokerAddr(), 8000).getSubscriptionGroupTable().keySet());
        }
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("groups", groups);
        shown.put("behind", admin.examineConsumeStats(options.getString("group")).computeTotalDiff());
        return shown;
    }

    /** The figures of each broker. */
    private Map<String, Object> cluster() throws Exception {
        Map<String, Object> shown = new TreeMap<>();
        for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            String address = broker.selectBrokerAddr();
            Map<String, Object> figures = new TreeMap<>();
            figures.put("runtime", admin.fetchBrokerRuntimeStats(address).getTable().keySet());
            figures.put("config", admin.getBrokerConfig(address).getProperty("brokerName"));
            shown.put(broker.getBrokerName(), figures);
        }
        return shown;
    }
}
