import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Runs mqadmin commands and official Java clients, of any version from 4.9 on, for tests: reads one command as a line of
 * JSON from stdin, answers one line of JSON on stdout, ends with its input. Compiled and driven by java_client.py.
 */
@SuppressWarnings("deprecation")
public final class Harness {
    private final Map<String, Clients> clients = new HashMap<>();
    private final Consumers consumers = new Consumers();

    private static final class Clients {
        final DefaultMQAdminExt admin = new DefaultMQAdminExt();
        final DefaultMQProducer producer = new DefaultMQProducer("PG_INTEROP");
        final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("CG_INTEROP");

        Clients(String nameServer) throws Exception {
            String instance = "interop-" + System.nanoTime();
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName(instance);
            producer.start();
            consumer.setNamesrvAddr(nameServer);
            consumer.setInstanceName(instance);
            consumer.start();
            admin.setNamesrvAddr(nameServer);
            admin.setInstanceName(instance);
            admin.start();
        }

        Object of(String kind) {
            return switch (kind) {
                case "admin" -> admin;
                case "producer" -> producer;
                case "consumer" -> consumer;
                default -> throw new IllegalArgumentException("no client " + kind);
            };
        }

        void shutdown() {
            admin.shutdown();
            consumer.shutdown();
            producer.shutdown();
        }
    }

    /** A client that shuts down waits up to 3 s for its event thread to look up from its queue: wakes that thread. */
    private record Waker(Thread waiting) implements Runnable {
        @Override
        public void run() {
            try {
                while (true) {
                    Thread.sleep(20);
                    if (isShuttingDown()) {
                        wake();
                    }
                }
            } catch (InterruptedException done) {
                Thread.currentThread().interrupt();
            }
        }

        private boolean isShuttingDown() {
            for (StackTraceElement frame : waiting.getStackTrace()) {
                if (frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown")) {
                    return true;
                }
            }
            return false;
        }

        private static void wake() {
            Thread[] threads = new Thread[Thread.activeCount() + 16];
            int count = Thread.enumerate(threads);
            for (int number = 0; number < count; number++) {
                if (threads[number].getName().contains("NettyEventExecutor")) {
                    threads[number].interrupt();
                }
            }
        }
    }

    /** Some commands print tables until somebody stops them. */
    private record Limiter(Thread running, long millis) implements Runnable {
        @Override
        public void run() {
            try {
                Thread.sleep(millis);
                while (true) {
                    running.interrupt();
                    Thread.sleep(200);
                }
            } catch (InterruptedException done) {
                Thread.currentThread().interrupt();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Harness harness = new Harness();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer = text(harness.answer(JSON.parseObject(line)));
            answers.write(answer.getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        System.exit(0);
    }

    private static String text(Map<String, Object> answer) {
        return JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue) + "\n";
    }

    private Map<String, Object> answer(JSONObject command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            switch (command.getString("command")) {
                case "mqadmin" -> answer.put("output",
                    mqadmin(command.getJSONArray("arguments").toArray(new String[0]), command.getLongValue("limitMillis")));
                case "commands" -> answer.put("names", commandNames());
                case "view" -> answer.put("messages", List.of(describe(view(command))));
                case "query" -> answer.put("messages", describe(query(command).getMessageList()));
                case "send" -> answer.put("status", send(command));
                case "disconnect" -> disconnect(command.getString("nameServer"));
                case "consume" -> consumers.start(command.getJSONArray("consumers").toJavaList(JSONObject.class));
                case "look" -> answer.put("consumed", consumers.look(command.getString("name")));
                case "limit" -> consumers.limit(command.getString("name"), command.getLongValue("limit"));
                case "offsetForTimestamp" -> answer.put("offset",
                    consumers.offsetForTimestamp(command.getString("name"), command.getIntValue("queueId"), command.getLongValue("timestamp")));
                case "end" -> answer.put("consumed", consumers.end(command.getJSONArray("names").toJavaList(String.class)));
                case "dashboard" -> answer.put("shown", dashboard(command));
                case "pull" -> answer.put("lines", consumers.pull(command));
                default -> throw new IllegalArgumentException("no command " + command);
            }
        } catch (Throwable failure) {
            Throwable cause = failure instanceof InvocationTargetException ? failure.getCause() : failure;
            answer.put("error", cause.toString());
        }
        return answer;
    }

    /** What the command prints on stdout and stderr, in the order of printing; with a limit it is interrupted then. */
    private String mqadmin(String[] arguments, long limitMillis) throws Exception {
        forgetCommands();
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(stream);
        System.setErr(stream);
        List<Thread> helpers = new ArrayList<>(List.of(new Thread(new Waker(Thread.currentThread()))));
        if (limitMillis > 0) {
            helpers.add(new Thread(new Limiter(Thread.currentThread(), limitMillis)));
        }
        for (Thread helper : helpers) {
            helper.setDaemon(true);
            helper.start();
        }
        try {
            MQAdminStartup.main(arguments);
        } finally {
            helpers.forEach(Harness::end);
            Thread.interrupted();
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    /** Ends a helper, which may interrupt us until it has ended. */
    private static void end(Thread helper) {
        helper.interrupt();
        while (helper.isAlive()) {
            try {
                helper.join();
            } catch (InterruptedException again) {
                Thread.interrupted();
            }
        }
    }

    /** The names of all commands that mqadmin of this version knows. */
    private static List<String> commandNames() throws Exception {
        forgetCommands();
        MQAdminStartup.initCommand();
        List<String> names = new ArrayList<>();
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                for (Object command : (List<?>) field.get(null)) {
                    names.add(((SubCommand) command).commandName());
                }
            }
        }
        return names;
    }

    /** Commands keep the client of their last run, and start-up adds them all once more each time. */
    private static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((Collection<?>) field.get(null)).clear();
            }
        }
    }

    private MessageExt view(JSONObject command) throws Exception {
        Object client = client(command);
        String id = command.getString("id");
        String topic = command.getString("topic");
        if (topic == null) {
            return (MessageExt) client.getClass().getMethod("viewMessage", String.class).invoke(client, id);
        }
        return (MessageExt) client.getClass().getMethod("viewMessage", String.class, String.class).invoke(client, topic, id);
    }

    private QueryResult query(JSONObject command) throws Exception {
        Object client = client(command);
        return (QueryResult) client.getClass()
            .getMethod("queryMessage", String.class, String.class, int.class, long.class, long.class)
            .invoke(client, command.getString("topic"), command.getString("key"), command.getIntValue("maximum"),
                command.getLongValue("begin"), command.getLongValue("end"));
    }

    /** Sends one message to a queue of a topic, or to any that the producer finds in the route. */
    private String send(JSONObject command) throws Exception {
        DefaultMQProducer producer = (DefaultMQProducer) client(command);
        Message message = new Message(command.getString("topic"), "TagA", "sent", "sent".getBytes(StandardCharsets.UTF_8));
        Integer queueId = command.getInteger("queueId");
        SendResult result = queueId == null
            ? producer.send(message)
            : producer.send(message, new MessageQueue(message.getTopic(), "broker-a", queueId));
        return result.getSendStatus().name();
    }

    private Object client(JSONObject command) throws Exception {
        String nameServer = command.getString("nameServer");
        if (!clients.containsKey(nameServer)) {
            clients.put(nameServer, new Clients(nameServer));
        }
        return clients.get(nameServer).of(command.getString("client"));
    }

    /** By its name, for it is not there with 4.9. */
    private static Object dashboard(JSONObject command) throws Exception {
        return Class.forName("Dashboard").getDeclaredMethod("page", JSONObject.class).invoke(null, command);
    }

    private void disconnect(String nameServer) {
        Clients connected = clients.remove(nameServer);
        if (connected != null) {
            connected.shutdown();
        }
    }

    private static List<Map<String, Object>> describe(List<MessageExt> messages) throws Exception {
        List<Map<String, Object>> described = new ArrayList<>();
        for (MessageExt message : messages) {
            described.add(describe(message));
        }
        return described;
    }

    static Map<String, Object> describe(MessageExt message) throws Exception {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("messageId", message.getMsgId());
        fields.put("offsetMessageId", message.getClass().getMethod("getOffsetMsgId").invoke(message));
        fields.put("topic", message.getTopic());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("physicalOffset", message.getCommitLogOffset());
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("storeHost", describe(message.getStoreHost()));
        fields.put("bornHost", describe(message.getBornHost()));
        fields.put("keys", message.getKeys());
        fields.put("tags", message.getTags());
        fields.put("flag", message.getFlag());
        fields.put("sysFlag", message.getSysFlag());
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("properties", new TreeMap<>(message.getProperties()));
        fields.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        return fields;
    }

    private static String describe(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + " " + host.getPort();
    }
}
