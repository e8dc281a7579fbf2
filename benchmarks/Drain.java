import java.util.BitSet;
import java.util.Locale;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Drains a topic with one official push consumer of default settings for each line of its input: name server, group,
 * topic, how many different messages pass, expression. Prints a line of JSON when that many came, or time is up.
 */
public final class Drain {
    private static final long TIMEOUT_SECONDS = 300;
    private static final int QUEUES = 64;

    private final BitSet[] seen = new BitSet[QUEUES];
    private final CountDownLatch done = new CountDownLatch(1);
    private final long expected;
    private long received;
    private long repeated;
    private long first;
    private long last;

    private Drain(long expected) {
        this.expected = expected;
        for (int i = 0; i < QUEUES; i++) {
            seen[i] = new BitSet();
        }
    }

    private synchronized void take(Iterable<MessageExt> messages) {
        long now = System.nanoTime();
        for (MessageExt message : messages) {
            BitSet queue = seen[message.getQueueId()];
            int offset = (int) message.getQueueOffset();
            if (queue.get(offset)) {
                repeated++;
                continue;
            }
            queue.set(offset);
            first = received == 0 ? now : first;
            last = now;
            received++;
        }
        if (received >= expected) {
            done.countDown();
        }
    }

    private synchronized String report(long started) {
        return String.format(
            Locale.ROOT,
            "{\"received\":%d,\"repeated\":%d,\"first_seconds\":%.6f,\"last_seconds\":%.6f}",
            received, repeated, (first - started) / 1e9, (last - started) / 1e9);
    }

    private static String drain(String nameServer, String group, String topic, long expected, String expression)
        throws Exception {
        Drain drain = new Drain(expected);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, MessageSelector.bySql(expression));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            drain.take(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long started = System.nanoTime();
        consumer.start();
        drain.done.await(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        String report = drain.report(started);
        consumer.shutdown();
        return report;
    }

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", 5);
            System.out.println(drain(words[0], words[1], words[2], Long.parseLong(words[3]), words[4]));
            System.out.flush();
        }
        System.exit(0);
    }
}
