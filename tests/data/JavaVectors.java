import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageVersion;
import org.apache.rocketmq.store.MessageExtEncoder;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Asks the JDK and RocketMQ's own classes what strings, properties, records and ids mean; writes one vector a line.
 *
 * <p>The answers in {@code java-vectors.tsv.xz} were made with JDK 17 and RocketMQ 5.5.0, in the folder of jars that
 * {@code tests/interop/jars.py} fills: {@code java -cp 'JARS/*' tests/data/JavaVectors.java java-vectors.tsv}. The
 * first column is the kind of vector; bytes are in hex, texts in hex of UTF-16.
 */
public class JavaVectors {
    private static final Random RANDOM = new Random(550);
    /** Bytes at which a UTF-8 decoder decides something. */
    private static final byte[] CRITICAL = bytes(
        0x00, 0x01, 0x02, 0x23, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE2,
        0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xF7, 0xF8, 0xFF);

    private static PrintStream output;

    public static void main(String[] arguments) throws Exception {
        output = new PrintStream(arguments[0], StandardCharsets.US_ASCII);
        strings();
        properties();
        messageIds();
        uniqueKeys();
        messages();
        innerBatches();
        output.close();
    }

    // new String(bytes, UTF_8) and hashCode
    private static void strings() {
        for (int length = 1; length <= 4; length++) {
            exhaustive(length);
        }
        for (int number = 0; number < 1500; number++) {
            byte[] data = randomBytes(RANDOM.nextInt(14));
            String text = new String(data, StandardCharsets.UTF_8);
            print("string", hex(data), hex(text), text.hashCode());
        }
        for (String text : new String[] {"TagA", "polygenelubricants", "\uD83D\uDE00", "Aa", "BB", "\u6807\u7B7E"}) {
            print("string", hex(text.getBytes(StandardCharsets.UTF_8)), hex(text), text.hashCode());
        }
    }

    // One line for all strings of a length over CRITICAL: a checksum of everything they decode to.
    private static void exhaustive(int length) {
        CRC32 checksum = new CRC32();
        byte[] data = new byte[length];
        int count = (int) Math.pow(CRITICAL.length, length);
        for (int number = 0; number < count; number++) {
            for (int place = length - 1, rest = number; place >= 0; place--, rest /= CRITICAL.length) {
                data[place] = CRITICAL[rest % CRITICAL.length];
            }
            checksum.update(new String(data, StandardCharsets.UTF_8).getBytes(StandardCharsets.UTF_16BE));
            checksum.update(0);
        }
        print("exhaustive", hex(CRITICAL), length, checksum.getValue());
    }

    // MessageDecoder.string2messageProperties
    private static void properties() {
        byte[][] pieces = new byte[][] {
            bytes(1), bytes(2), bytes('a'), bytes('b'), "KEYS".getBytes(), "TAGS".getBytes(), "UNIQ_KEY".getBytes(),
            bytes(' '), "\u6807".getBytes(StandardCharsets.UTF_8), bytes(0xED, 0xA0), bytes(0xF0, 0x9F), bytes(0xFF),
            bytes(1, 2), bytes(2, 2), bytes(1), bytes(2)};
        for (int number = 0; number < 1500; number++) {
            ByteBuffer buffer = ByteBuffer.allocate(200);
            for (int count = RANDOM.nextInt(16); count > 0; count--) {
                buffer.put(pieces[RANDOM.nextInt(pieces.length)]);
            }
            byte[] data = taken(buffer);
            Map<String, String> map = MessageDecoder.string2messageProperties(new String(data, StandardCharsets.UTF_8));
            print("properties", hex(data), pairs(map));
        }
    }

    // MessageDecoder.createMessageId and decodeMessageId
    private static void messageIds() throws Exception {
        for (int number = 0; number < 100; number++) {
            InetSocketAddress address = randomAddress(number % 2 == 1);
            long offset = number < 4 ? new long[] {0, 1, -1, Long.MAX_VALUE}[number] : RANDOM.nextLong();
            String id = MessageDecoder.createMessageId(address, offset);
            if (MessageDecoder.decodeMessageId(id).getOffset() != offset) {
                throw new IllegalStateException(id);
            }
            print("message-id", id, hex(address.getAddress().getAddress()), address.getPort(), offset);
        }
    }

    // MessageClientIDSetter.getIPFromID and getPidFromID
    private static void uniqueKeys() {
        for (int number = 0; number < 100; number++) {
            byte[] id = new byte[number % 2 == 1 ? 28 : 16];
            RANDOM.nextBytes(id);
            String text = UtilAll.bytes2string(id);
            int pid = MessageClientIDSetter.getPidFromID(text);
            print("unique-key", text, hex(MessageClientIDSetter.getIPFromID(text)), pid);
        }
    }

    // MessageExtEncoder, and what MessageDecoder.clientDecode makes of its bytes
    private static void messages() throws Exception {
        CompressionType[] types = {
            null, CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD, CompressionType.ZLIB};
        for (int number = 0; number < 80; number++) {
            MessageExtBrokerInner message = randomMessage(number % 2 == 1, (number & 2) != 0, (number & 4) != 0);
            int compression = number / 8 % types.length;
            message.setBody(randomBody());
            if (types[compression] != null) {
                message.setBody(CompressorFactory.getCompressor(types[compression]).compress(message.getBody(), 5));
                // The first way to say zlib is to say nothing, as older clients do.
                int type = compression == 1 ? 0 : types[compression].getCompressionFlag();
                message.setSysFlag(message.getSysFlag() | 1 | type);
            }
            printMessage("message", encode(message, number >= 40));
        }
    }

    // Records with a whole batch as body, and the messages a consumer gets of them
    private static void innerBatches() throws Exception {
        for (int number = 1; number <= 8; number++) {
            List<Message> batch = new ArrayList<>();
            for (int count = number; count > 0; count--) {
                Message inner = new Message("T", randomBody());
                inner.setFlag(RANDOM.nextInt());
                for (Map.Entry<String, String> pair : randomProperties().entrySet()) {
                    MessageAccessor.putProperty(inner, pair.getKey(), pair.getValue());
                }
                batch.add(inner);
            }
            MessageExtBrokerInner message = randomMessage(false, false, false);
            message.setBody(MessageDecoder.encodeMessages(batch));
            message.setSysFlag(message.getSysFlag() | 0xC0);
            if (number % 2 == 1) {
                message.setBody(CompressorFactory.getCompressor(CompressionType.LZ4).compress(message.getBody(), 5));
                message.setSysFlag(message.getSysFlag() | 0x101);
            }
            byte[] record = encode(message, false);
            print("inner-batch", hex(record));
            List<MessageExt> inner = new ArrayList<>();
            MessageDecoder.decodeMessage(MessageDecoder.clientDecode(ByteBuffer.wrap(record), true), inner);
            for (MessageExt each : inner) {
                print("inner", each.getQueueOffset(), each.getFlag(), hex(each.getBody()), pairs(each.getProperties()),
                    hex(each.getTopic()), each.getCommitLogOffset());
            }
        }
    }

    private static MessageExtBrokerInner randomMessage(boolean isV2, boolean isBornV6, boolean isStoreV6)
        throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setVersion(isV2 ? MessageVersion.MESSAGE_VERSION_V2 : MessageVersion.MESSAGE_VERSION_V1);
        message.setTopic("%RETRY%" + "\u4E3B\u9898".repeat(isV2 ? 30 : 2) + RANDOM.nextInt(1000));
        message.setQueueId(RANDOM.nextInt());
        message.setFlag(RANDOM.nextInt());
        message.setQueueOffset(RANDOM.nextLong());
        message.setSysFlag(0);
        message.setBornTimestamp(RANDOM.nextLong());
        message.setBornHost(randomAddress(isBornV6));
        message.setStoreTimestamp(RANDOM.nextLong());
        message.setStoreHost(randomAddress(isStoreV6));
        if (isBornV6) {
            message.setBornHostV6Flag();
        }
        if (isStoreV6) {
            message.setStoreHostAddressV6Flag();
        }
        message.setReconsumeTimes(RANDOM.nextInt());
        message.setPreparedTransactionOffset(RANDOM.nextLong());
        message.setPropertiesString(MessageDecoder.messageProperties2String(randomProperties()));
        return message;
    }

    // As DefaultAppendMessageCallback.doAppend completes the encoder's bytes.
    private static byte[] encode(MessageExtBrokerInner message, boolean withPropertyCrc) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setEnabledAppendPropCRC(withPropertyCrc);
        message.setBodyCRC(UtilAll.crc32(message.getBody()));
        MessageExtEncoder encoder = new MessageExtEncoder(config);
        encoder.encode(message);
        ByteBuffer buffer = encoder.getEncoderBuffer();
        int size = buffer.getInt(0);
        buffer.putLong(28, RANDOM.nextLong());
        byte[] record = new byte[size];
        buffer.get(0, record);
        if (withPropertyCrc) {
            int crc = UtilAll.crc32(record, 0, size - 20);
            MessageDecoder.createCrc32(ByteBuffer.wrap(record, size - 20, 20), crc);
        }
        return record;
    }

    private static void printMessage(String kind, byte[] record) {
        MessageClientExt message = (MessageClientExt) MessageDecoder.clientDecode(ByteBuffer.wrap(record), true);
        MessageExt stored = MessageDecoder.decode(ByteBuffer.wrap(record), true, false);
        print(kind, hex(record), message.getStoreSize(), message.getBodyCRC(), message.getQueueId(), message.getFlag(),
            message.getQueueOffset(), message.getCommitLogOffset(), stored.getSysFlag(), message.getBornTimestamp(),
            hex(address(message.getBornHost()).getAddress().getAddress()), address(message.getBornHost()).getPort(),
            message.getStoreTimestamp(), hex(address(message.getStoreHost()).getAddress().getAddress()),
            address(message.getStoreHost()).getPort(), message.getReconsumeTimes(),
            message.getPreparedTransactionOffset(), hex(message.getBody()), hex(message.getTopic()),
            pairs(message.getProperties()), message.getOffsetMsgId(), hex(message.getMsgId()));
    }

    private static InetSocketAddress address(java.net.SocketAddress address) {
        return (InetSocketAddress) address;
    }

    private static Map<String, String> randomProperties() {
        Map<String, String> properties = new TreeMap<>();
        String[] names = {"KEYS", "TAGS", "UNIQ_KEY", "WAIT", "\u7279\u6027"};
        for (String name : names) {
            if (RANDOM.nextBoolean()) {
                properties.put(name, "v" + RANDOM.nextInt(1000) + (RANDOM.nextBoolean() ? " \uD83D\uDD11" : ""));
            }
        }
        return properties;
    }

    private static byte[] randomBody() {
        return "\u6B63\u6587 body ".repeat(1 + RANDOM.nextInt(4)).concat(Integer.toString(RANDOM.nextInt()))
            .getBytes(StandardCharsets.UTF_8);
    }

    private static InetSocketAddress randomAddress(boolean isV6) throws Exception {
        byte[] ip = new byte[isV6 ? 16 : 4];
        RANDOM.nextBytes(ip);
        return new InetSocketAddress(InetAddress.getByAddress(ip), RANDOM.nextInt(65536));
    }

    private static byte[] randomBytes(int length) {
        byte[] data = new byte[length];
        for (int place = 0; place < length; place++) {
            data[place] = CRITICAL[RANDOM.nextInt(CRITICAL.length)];
        }
        return data;
    }

    private static byte[] bytes(int... values) {
        byte[] data = new byte[values.length];
        for (int place = 0; place < values.length; place++) {
            data[place] = (byte) values[place];
        }
        return data;
    }

    private static byte[] taken(ByteBuffer buffer) {
        byte[] data = new byte[buffer.position()];
        buffer.get(0, data);
        return data;
    }

    private static String pairs(Map<String, String> map) {
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, String> pair : new TreeMap<>(map == null ? Map.of() : map).entrySet()) {
            text.append(hex(pair.getKey())).append('=').append(hex(pair.getValue())).append(',');
        }
        return text.toString();
    }

    private static String hex(String text) {
        return hex(text.getBytes(StandardCharsets.UTF_16BE));
    }

    private static String hex(byte[] data) {
        return UtilAll.bytes2string(data == null ? new byte[0] : data).toLowerCase();
    }

    private static void print(Object... columns) {
        StringBuilder line = new StringBuilder();
        for (Object column : columns) {
            line.append(line.length() == 0 ? "" : "\t").append(column);
        }
        output.println(line);
    }
}
