import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends messages with one official producer: name server, topic, messages, bytes of a body, messages a batch, requests
 * in flight. Each batch goes to one queue, the queues take turns. A first tenth warms up and does not count. Prints a
 * line of JSON.
 */
public final class Send {
    private Send() {
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        int size = Integer.parseInt(arguments[3]);
        int batch = Integer.parseInt(arguments[4]);
        int flying = Integer.parseInt(arguments[5]);
        DefaultMQProducer producer = new DefaultMQProducer("Send");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(60_000);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(arguments[1]);
        send(producer, queues, arguments[1], count / 10, size, batch, flying);
        long started = System.nanoTime();
        long cpu = ProcessHandle.current().info().totalCpuDuration().get().toNanos();
        long failed = send(producer, queues, arguments[1], count, size, batch, flying);
        double seconds = (System.nanoTime() - started) / 1e9;
        double used = (ProcessHandle.current().info().totalCpuDuration().get().toNanos() - cpu) / 1e9;
        System.out.printf(Locale.ROOT, "{\"seconds\":%.3f,\"cpu\":%.3f,\"failed\":%d}%n", seconds, used, failed);
        System.out.flush();
        System.exit(0);
    }

    private static long send(DefaultMQProducer producer, List<MessageQueue> queues, String topic, int count, int size,
        int batch, int flying) throws Exception {
        Semaphore free = new Semaphore(flying);
        AtomicLong failed = new AtomicLong();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                free.release();
            }

            @Override
            public void onException(Throwable failure) {
                failed.incrementAndGet();
                free.release();
            }
        };
        for (int number = 0; number < count; number += batch) {
            List<Message> messages = new ArrayList<>(batch);
            for (int place = 0; place < batch && number + place < count; place++) {
                Message message = new Message(topic, "T", "k" + (number + place), new byte[size]);
                message.putUserProperty("a", Integer.toString(number + place));
                message.putUserProperty("region", "hz");
                messages.add(message);
            }
            free.acquire();
            MessageQueue queue = queues.get(number / batch % queues.size());
            if (batch == 1) {
                producer.send(messages.get(0), queue, callback);
            } else {
                producer.send(messages, queue, callback);
            }
        }
        free.acquire(flying);
        return failed.get();
    }
}
