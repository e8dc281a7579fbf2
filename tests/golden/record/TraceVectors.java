import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.listener.ConsumeReturnType;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;
import org.apache.rocketmq.client.trace.TraceType;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.common.message.MessageType;

/** Prints what the client's own encoder makes of traces of every kind: kind, keys and data, a line each, in hex. */
public class TraceVectors {
    public static void main(String[] arguments) {
        for (TraceType type : TraceType.values()) {
            for (boolean success : new boolean[] {true, false}) {
                for (ConsumeReturnType outcome : ConsumeReturnType.values()) {
                    print(context(type, success, outcome));
                    if (type != TraceType.SubAfter) {
                        break;
                    }
                }
            }
        }
    }

    private static TraceContext context(TraceType type, boolean success, ConsumeReturnType outcome) {
        TraceBean bean = new TraceBean();
        bean.setTopic("Topic-" + type);
        bean.setMsgId("7F0000010007");
        bean.setOffsetMsgId("7F00000100002A9F0000000000000010");
        bean.setTags("TagÄ");
        bean.setKeys("k1 k2");
        bean.setStoreHost("127.0.0.1:10911");
        bean.setClientHost("127.0.0.2");
        bean.setStoreTime(1795243506110L);
        bean.setRetryTimes(3);
        bean.setBodyLength(11);
        bean.setMsgType(MessageType.Trans_msg_Commit);
        bean.setTransactionId("tx-1");
        bean.setTransactionState(success ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE);
        bean.setFromTransactionCheck(success);
        TraceContext context = new TraceContext();
        context.setTraceType(type);
        context.setTimeStamp(1795243506437L);
        context.setRegionId("DefaultRegion");
        context.setGroupName("group-1");
        context.setRequestId("request-1");
        context.setCostTime(17);
        context.setSuccess(success);
        context.setContextCode(outcome.ordinal());
        context.setAccessChannel(AccessChannel.LOCAL);
        context.setTraceBeans(new ArrayList<>(List.of(bean)));
        return context;
    }

    private static void print(TraceContext context) {
        TraceTransferBean encoded = TraceDataEncoder.encoderFromContextBean(context);
        System.out.println(
            context.getTraceType() + "\t" + context.isSuccess() + "\t"
                + ConsumeReturnType.values()[context.getContextCode()] + "\t" + sorted(encoded.getTransKey()) + "\t"
                + hex(encoded.getTransData()));
    }

    private static String sorted(Set<String> keys) {
        return String.join(" ", new java.util.TreeSet<>(keys));
    }

    private static String hex(String text) {
        return java.util.HexFormat.of().formatHex(text.getBytes(java.nio.charset.StandardCharsets.UTF_8));
    }
}
