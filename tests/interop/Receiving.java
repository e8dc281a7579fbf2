import java.io.PrintStream;
import java.time.Duration;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;

/** Receives once through a proxy, by gRPC, and says how many messages came, or why none did. */
public final class Receiving {
    private Receiving() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream told = System.out;
        System.setOut(System.err); // where libraries may say what they like
        ClientServiceProvider provider = ClientServiceProvider.loadService();
        ClientConfiguration configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[0]).enableSsl(false).setRequestTimeout(Duration.ofSeconds(30)).build();
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(arguments[1])
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(arguments[2], FilterExpression.SUB_ALL))
            .build();
        try {
            told.println("received " + consumer.receive(32, Duration.ofSeconds(20)).size());
        } catch (ClientException failure) {
            told.println(failure);
        }
        told.flush();
        System.exit(0);
    }
}
