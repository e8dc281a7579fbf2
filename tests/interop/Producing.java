import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages one after the other, so many a second, to the topics whose names come on stdin, until that ends.
 *
 * Message n has the keys "key{n} all", the tag "tag{n / 8}" and a body of 100 to 6,099 bytes that n determines. For each
 * one a line tells n, topic, queue, queue offset, unique key and offset message id.
 */
public final class Producing {
    private static final PrintStream TOLD = System.out;
    private static volatile boolean isOver = false;

    private Producing() {
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err); // where libraries may say what they like
        DefaultMQProducer producer = new DefaultMQProducer("producing");
        producer.setNamesrvAddr(arguments[0]);
        producer.setPollNameServerInterval(500);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        List<String> topics = new CopyOnWriteArrayList<>();
        Thread sender = new Thread(() -> send(producer, topics, Double.parseDouble(arguments[1])));
        sender.setDaemon(true);
        sender.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String topic = input.readLine(); topic != null; topic = input.readLine()) {
            topics.add(topic);
        }
        isOver = true;
        sender.join(); // so that the message that is on its way is reported, too
        TOLD.flush();
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, List<String> topics, double perSecond) {
        try {
            long start = System.nanoTime();
            for (long number = 0; ; number++) {
                while (!isOver && (topics.isEmpty() || System.nanoTime() < start + (long) (number * 1e9 / perSecond))) {
                    Thread.sleep(1);
                }
                if (isOver) {
                    return;
                }
                String topic = topics.get((int) (number % topics.size()));
                Message message = new Message(topic, "tag" + number / 8, "key" + number + " all", body(number));
                SendResult result = producer.send(message);
                TOLD.println(String.join("\t", Long.toString(number), topic,
                    Integer.toString(result.getMessageQueue().getQueueId()), Long.toString(result.getQueueOffset()),
                    result.getMsgId(), result.getOffsetMsgId()));
            }
        } catch (Throwable failure) {
            TOLD.println("failed\t" + failure);
        }
    }

    private static byte[] body(long number) {
        byte[] unit = ("body " + number + " ").getBytes(StandardCharsets.US_ASCII);
        byte[] body = new byte[100 + (int) (number * 7919 % 6000)];
        for (int position = 0; position < body.length; position++) {
            body[position] = unit[position % unit.length];
        }
        return body;
    }
}
