import apache.rocketmq.v2.AdminGrpc;
import apache.rocketmq.v2.AdminOuterClass.ListMessageRequest;
import apache.rocketmq.v2.AdminOuterClass.ListMessageResponse;
import apache.rocketmq.v2.Definition.Address;
import apache.rocketmq.v2.Definition.AddressScheme;
import apache.rocketmq.v2.Definition.Code;
import apache.rocketmq.v2.Definition.Endpoints;
import apache.rocketmq.v2.Definition.Message;
import apache.rocketmq.v2.Definition.MessageQueue;
import apache.rocketmq.v2.Definition.QueryOffsetPolicy;
import apache.rocketmq.v2.Definition.Resource;
import apache.rocketmq.v2.MessagingServiceGrpc;
import apache.rocketmq.v2.Service.GetOffsetRequest;
import apache.rocketmq.v2.Service.PullMessageRequest;
import apache.rocketmq.v2.Service.PullMessageResponse;
import apache.rocketmq.v2.Service.QueryOffsetRequest;
import apache.rocketmq.v2.Service.QueryRouteRequest;
import apache.rocketmq.v2.Service.QueryRouteResponse;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Timestamp;
import io.grpc.ClientInterceptor;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;

/**
 * Asks a gRPC port, by stubs that protoc generated from our messages, what the lines of stdin say: to list messages page by
 * page, or to pull all queues of a topic. Prints a line for each message, each queue and each end, as tests/interop/grpc-go.
 */
public final class Querying {
    private static final int CALL_SECONDS = 60;
    private static final Resource GROUP = Resource.newBuilder().setName("GeneratedStubs").build();

    private final PrintStream told = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final AdminGrpc.AdminBlockingStub admin;
    private final MessagingServiceGrpc.MessagingServiceBlockingStub messaging;
    private final Endpoints endpoints;

    private Querying(ManagedChannel channel, String host, int port) {
        Metadata metadata = new Metadata();
        metadata.put(Metadata.Key.of("x-mq-client-id", Metadata.ASCII_STRING_MARSHALLER), "java@1");
        metadata.put(Metadata.Key.of("x-mq-language", Metadata.ASCII_STRING_MARSHALLER), "JAVA");
        ClientInterceptor named = MetadataUtils.newAttachHeadersInterceptor(metadata);
        admin = AdminGrpc.newBlockingStub(channel);
        messaging = MessagingServiceGrpc.newBlockingStub(channel).withInterceptors(named);
        endpoints = Endpoints.newBuilder().setScheme(AddressScheme.IPv4)
            .addAddresses(Address.newBuilder().setHost(host).setPort(port)).build();
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        ManagedChannel channel = NettyChannelBuilder.forAddress(arguments[0], port).usePlaintext()
            .maxInboundMessageSize(Integer.MAX_VALUE).build();
        Querying querying = new Querying(channel, arguments[0], port);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            JsonObject question = JsonParser.parseString(line).getAsJsonObject();
            if (question.get("form").getAsString().equals("pull")) {
                querying.pull(question);
            } else {
                querying.list(question);
            }
        }
        querying.told.flush();
        channel.shutdownNow();
    }

    private void list(JsonObject question) {
        ListMessageRequest.Builder request = ListMessageRequest.newBuilder()
            .setTopic(topicOf(question)).setMaxMessageNums(question.get("size").getAsInt());
        String value = question.get("value").getAsString();
        switch (question.get("form").getAsString()) {
            case "id" -> request.setMessageId(value);
            case "key" -> request.setMessageKey(value);
            case "subscription" -> request.setSubscription(value);
            default -> request
                .setBeginTimestamp(timeOf(question, "begin"))
                .setEndTimestamp(timeOf(question, "end"));
        }
        ListMessageResponse answer;
        int pages = 0;
        do {
            answer = admin.withDeadlineAfter(CALL_SECONDS, TimeUnit.SECONDS).queryMessage(request.build());
            answer.getMessagesList().forEach(message -> tell(question, message));
            request.setScrollId(answer.getScrollId());
            pages++;
        } while (answer.getStatus().getCode() == Code.OK && !answer.getScrollId().isEmpty());
        JsonObject end = about(question);
        end.addProperty("status", answer.getStatus().getCode().name());
        end.addProperty("pages", pages);
        told.println(end);
    }

    private void pull(JsonObject question) {
        QueryRouteResponse route = messaging().queryRoute(
            QueryRouteRequest.newBuilder().setTopic(topicOf(question)).setEndpoints(endpoints).build());
        for (MessageQueue queue : route.getMessageQueuesList()) {
            long begin = offsetOf(queue, QueryOffsetPolicy.BEGINNING);
            long offset = begin;
            Code code;
            do {
                code = Code.CODE_UNSPECIFIED;
                Iterator<PullMessageResponse> answer = messaging().pullMessage(PullMessageRequest.newBuilder()
                    .setGroup(GROUP).setMessageQueue(queue).setOffset(offset)
                    .setBatchSize(question.get("size").getAsInt()).build());
                while (answer.hasNext()) {
                    PullMessageResponse part = answer.next();
                    switch (part.getContentCase()) {
                        case STATUS -> code = part.getStatus().getCode();
                        case MESSAGE -> tell(question, part.getMessage());
                        case NEXT_OFFSET -> offset = part.getNextOffset();
                        default -> throw new IllegalStateException("a part without content");
                    }
                }
            } while (code == Code.OK);
            JsonObject end = about(question);
            end.addProperty("queue", queue.getId());
            end.addProperty("begin", begin);
            end.addProperty("end", offsetOf(queue, QueryOffsetPolicy.END));
            end.addProperty("reached", offset);
            end.addProperty("status", code.name());
            end.addProperty("committed", messaging().getOffset(
                GetOffsetRequest.newBuilder().setGroup(GROUP).setMessageQueue(queue).build()).getStatus().getCode().name());
            told.println(end);
        }
        JsonObject end = about(question);
        end.addProperty("status", route.getStatus().getCode().name());
        told.println(end);
    }

    private long offsetOf(MessageQueue queue, QueryOffsetPolicy policy) {
        return messaging().queryOffset(
            QueryOffsetRequest.newBuilder().setMessageQueue(queue).setQueryOffsetPolicy(policy).build()).getOffset();
    }

    private MessagingServiceGrpc.MessagingServiceBlockingStub messaging() {
        return messaging.withDeadlineAfter(CALL_SECONDS, TimeUnit.SECONDS);
    }

    private static Resource topicOf(JsonObject question) {
        return Resource.newBuilder().setName(question.get("topic").getAsString()).build();
    }

    private static Timestamp timeOf(JsonObject question, String name) {
        long milliseconds = question.get(name).getAsLong();
        return Timestamp.newBuilder()
            .setSeconds(milliseconds / 1000).setNanos((int) (milliseconds % 1000) * 1_000_000).build();
    }

    private static JsonObject about(JsonObject question) {
        JsonObject line = new JsonObject();
        line.add("question", question.get("question"));
        return line;
    }

    private void tell(JsonObject question, Message message) {
        JsonObject line = about(question);
        line.addProperty("topic", message.getTopic().getName());
        line.addProperty("queue", message.getSystemProperties().getQueueId());
        line.addProperty("offset", message.getSystemProperties().getQueueOffset());
        line.addProperty("id", message.getSystemProperties().getMessageId());
        told.println(line);
    }
}
