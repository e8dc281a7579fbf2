import apache.rocketmq.v2.MQDomain;
import apache.rocketmq.v2.MQService;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import java.io.DataOutputStream;
import java.nio.ByteBuffer;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.proxy.grpc.v2.common.GrpcConverter;

/**
 * Writes the descriptors of the published messages, then for each record on stdin, which follow one another, the message
 * that the official proxy makes of it; each with its length before it, 0 for a record that it does not decode.
 */
public class GrpcOracle {
    public static void main(String[] arguments) throws Exception {
        DataOutputStream out = new DataOutputStream(new java.io.BufferedOutputStream(System.out));
        System.setOut(System.err);
        write(out, FileDescriptorSet.newBuilder()
            .addFile(MQDomain.getDescriptor().toProto())
            .addFile(MQService.getDescriptor().toProto())
            .build().toByteArray());
        byte[] records = System.in.readAllBytes();
        for (int at = 0; at < records.length;) {
            int size = ByteBuffer.wrap(records, at, 4).getInt();
            // As the proxy's client decodes: bodies are read, and stay compressed.
            MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(records, at, size).slice(), true, false);
            write(out, message == null ? new byte[0] : GrpcConverter.getInstance().buildMessage(message).toByteArray());
            at += size;
        }
        out.flush();
        System.exit(0);
    }

    private static void write(DataOutputStream out, byte[] bytes) throws Exception {
        out.writeInt(bytes.length);
        out.write(bytes);
    }
}
