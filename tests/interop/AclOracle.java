import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.rocketmq.acl.plain.PlainAccessResource;
import org.apache.rocketmq.acl.plain.PlainAccessValidator;
import org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Answers, a line of JSON a question, what the access validator of a RocketMQ 4.x broker says. */
public class AclOracle {
    public static void main(String[] arguments) throws Exception {
        java.io.PrintStream answers = System.out;
        System.setOut(System.err);
        PlainAccessValidator validator = new PlainAccessValidator();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(answer(validator, JSONObject.parseObject(line)).replace('\n', ' '));
            answers.flush();
        }
        System.exit(0);
    }

    private static String answer(PlainAccessValidator validator, JSONObject question) {
        try {
            if (question.containsKey("pattern")) {
                PlainAccessResource peer = new PlainAccessResource();
                peer.setWhiteRemoteAddress(question.getString("host"));
                RemoteAddressStrategyFactory factory = new RemoteAddressStrategyFactory();
                return factory.getRemoteAddressStrategy(question.getString("pattern")).match(peer) ? "yes" : "no";
            }
            byte[] frame = Base64.getDecoder().decode(question.getString("frame"));
            RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(frame, 4, frame.length - 4));
            validator.validate(validator.parse(command, question.getString("host") + ":4711"));
            return "admitted";
        } catch (Throwable error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage();
        }
    }
}
