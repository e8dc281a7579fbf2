import com.google.common.hash.Hashing;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Asks RocketMQ's own classes what random SQL92 expressions say of random properties; writes one JSON array a line.
 *
 * <p>The answers in {@code filter-vectors.jsonl.xz} were made with JDK 17 and RocketMQ 5.5.0, in the folder of jars
 * that {@code tests/interop/jars.py} fills: {@code java -cp 'JARS/*' tests/data/FilterVectors.java OUTPUT}. A seed and
 * a number of expressions and of numbers may follow. Lines are {@code ["properties", {...}]}, all before the first
 * {@code ["sql", expression, outcomes]}: a letter for each of the properties (T, F, N for null, E for an exception), or
 * null if the expression does not compile; {@code ["number", text, int, long, bits of the double]} with null for what
 * does not parse; {@code ["bloom", f, n, k, m]}; {@code ["positions", f, n, key, hash, positions]}.
 */
public class FilterVectors {
    private static final int PROPERTIES = 32;
    private static final String[] NAMES = {"a", "a", "b", "c", "价"};
    private static final String[] VALUES = {
        "0", "1", "5", "5", "7", "-1", "+5", "05", "-0", "5.0", "5.5", " 5", "5 ", "\u00a05", "5d", "5L", "1e3", "0x10",
        "0x1p3", ".5", "5.", "-0.0", "0.0", "NaN", "-Infinity", "Infinity", "nan", "2147483647", "2147483648",
        "-2147483648", "-2147483649", "9007199254740993", "9223372036854775807", "9223372036854775808", "1e400",
        "1e-400", "true", "TRUE", "false", "yes", "x", "xyz", "it's", "X", "tr\u016Be", "\u0665", "\uff15", "五",
        "\ud835\udfce", "\ud83d\ude00", "--", "/*", "abc"};
    private static final String[] OPERANDS = {
        "a", "a", "a", "b", "b", "c", "$_1", "5", "5", "1", "0", "7", "5L", "2147483647", "2147483648",
        "9007199254740993", "9223372036854775807", "5.0", "5.5", ".5", "5.", "1e3", "9007199254740992.0", "0.5E1",
        "'5'", "'x'", "'xyz'", "''", "'it''s'", "'5.0'", "'true'", "TRUE", "FALSE", "NULL", "true", "Null"};
    private static final String[] NUMBERS = {
        "5", "5", "1", "0", "7", "5L", "2147483647", "2147483648", "9007199254740993", "9223372036854775807", "5.0",
        "5.5", ".5", "5.", "1e3", "9007199254740992.0", "0.5E1"};
    private static final String[] TEXTS = {"'5'", "'x'", "'y'", "''", "'it''s'", "'true'", "'z'", "'5.0'",
        "'\ud83d\ude00'"};
    private static final String[] ORDERS = {">", ">=", "<", "<="};
    private static final String[] ODD = {
        "!", "==", "!=", "@", "#", "%", "*", "/", ".", "\"x\"", "'x", "/* x", "007", "0L", "1abc", "0x10", "1e",
        "1.5.5", "1..2", "0.0", ".0", "0e0", "1e309", "1e-400", "4.9E-324", "9223372036854775808",
        "99999999999999999999", "LIKE", "\u00a0", "\u000b", "\u3000", "é", "价", "\ud83d\ude00", "?", ";", "[", "a.b", "a-b",
        "--", "-- x", "||"};
    private static final String[] SPACES = {
        " ", " ", " ", " ", "\n", "\t", "\r\n", "\f", " /* c */ ", " -- c\n", " -- c\r", "/**/", "/***/", "/* ' */"};
    private static final String[] SOUP = {
        "NOT", "AND", "OR", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH", "ENDSWITH", "=",
        "<>", ">", ">=", "<", "<=", "(", ")", ",", "+", "-", "a", "b", "5", "5.5", "'x'"};

    private static PrintStream output;
    private static Random random;

    public static void main(String[] arguments) throws Exception {
        output = new PrintStream(arguments[0], StandardCharsets.US_ASCII);
        random = new Random(arguments.length > 1 ? Long.parseLong(arguments[1]) : 92);
        expressions(arguments.length > 2 ? Integer.parseInt(arguments[2]) : 4000);
        numbers(arguments.length > 2 ? Integer.parseInt(arguments[2]) : 1000);
        bloomFilters();
        output.close();
    }

    private static void expressions(int count) throws Exception {
        List<Map<String, String>> all = new ArrayList<>();
        for (int number = 0; number < PROPERTIES; number++) {
            Map<String, String> properties = new TreeMap<>();
            for (String name : NAMES) {
                if (number > 0 && random.nextInt(10) < 6) {
                    properties.put(name, pick(VALUES));
                }
            }
            all.add(properties);
            print("properties", properties);
        }
        for (int number = 0; number < count; number++) {
            String text = number % 6 == 0 ? soup() : number % 6 == 1 ? mutated(join(or(3))) : join(or(2));
            print("sql", text, outcomes(text, all));
        }
    }

    private static String outcomes(String text, List<Map<String, String>> all) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text);
        } catch (MQFilterException | RuntimeException error) {
            return null;
        }
        StringBuilder letters = new StringBuilder();
        for (Map<String, String> properties : all) {
            letters.append(outcome(expression, properties));
        }
        return letters.toString();
    }

    private static char outcome(Expression expression, Map<String, String> properties) {
        try {
            Object value = expression.evaluate(new MessageEvaluationContext(properties));
            return value == null ? 'N' : Boolean.TRUE.equals(value) ? 'T' : Boolean.FALSE.equals(value) ? 'F' : '?';
        } catch (Exception error) {
            return 'E';
        }
    }

    // The grammar, mostly with operands of the kinds that compile.
    private static List<String> or(int depth) {
        return joined(depth, "OR", rest -> joined(rest, "AND", FilterVectors::comparison));
    }

    private static List<String> joined(int depth, String operator, Function<Integer, List<String>> part) {
        List<String> tokens = new ArrayList<>(part.apply(depth));
        while (random.nextInt(4) == 0) {
            tokens.add(anyCase(operator));
            tokens.addAll(part.apply(depth));
        }
        return tokens;
    }

    private static List<String> comparison(int depth) {
        String not = random.nextInt(3) == 0 ? anyCase("NOT") : null;
        switch (random.nextInt(9)) {
            case 0: case 1:
                return together(operand(depth), List.of(random.nextInt(3) == 0 ? "<>" : "="), operand(depth));
            case 2: case 3:
                return together(number(), List.of(pick(ORDERS)), number());
            case 4:
                return together(number(), words(not, anyCase("BETWEEN")), number(), words(anyCase("AND")), number());
            case 5:
                List<String> tokens = together(
                    random.nextInt(12) == 0 ? operand(depth) : List.of(NAMES[random.nextInt(4)]),
                    words(not, anyCase("IN"), "(", pick(TEXTS)));
                while (random.nextBoolean()) {
                    tokens.addAll(List.of(",", pick(TEXTS)));
                }
                tokens.add(")");
                return tokens;
            case 6:
                return together(
                    operand(depth), words(not, anyCase(pick("CONTAINS", "STARTSWITH", "ENDSWITH")), pick(TEXTS)));
            case 7:
                return together(operand(depth), words(anyCase("IS"), not, anyCase("NULL")));
            default:
                return depth > 0 ? together(words(not), parenthesised(depth)) : words(not, pick("a", "TRUE", "NULL"));
        }
    }

    private static List<String> operand(int depth) {
        if (depth > 0 && random.nextInt(4) == 0) {
            return together(random.nextInt(5) == 0 ? List.of(pick("NOT", "-", "+")) : List.of(), parenthesised(depth));
        }
        return random.nextInt(4) == 0 ? List.of(pick(OPERANDS)) : number();
    }

    // A property or a number, which may stand nearly everywhere.
    private static List<String> number() {
        List<String> tokens = new ArrayList<>();
        while (random.nextInt(10) == 0) {
            tokens.add(pick("-", "-", "-", "+", "+", "NOT"));
        }
        String usual = random.nextInt(5) < 3 ? pick("a", "b", "c") : pick(NUMBERS);
        tokens.add(random.nextInt(30) == 0 ? pick(OPERANDS) : usual);
        return tokens;
    }

    private static List<String> parenthesised(int depth) {
        return together(List.of("("), or(depth - 1), List.of(")"));
    }

    @SafeVarargs
    private static List<String> together(List<String>... parts) {
        List<String> tokens = new ArrayList<>();
        for (List<String> part : parts) {
            tokens.addAll(part);
        }
        return tokens;
    }

    private static List<String> words(String... words) {
        List<String> tokens = new ArrayList<>(Arrays.asList(words));
        tokens.removeIf(Objects::isNull);
        return tokens;
    }

    private static String soup() {
        List<String> tokens = new ArrayList<>();
        tokens.add(pick(OPERANDS));
        for (int count = random.nextInt(7); count > 0; count--) {
            tokens.add(random.nextInt(6) == 0 ? pick(ODD) : pick(SOUP));
        }
        return join(tokens);
    }

    private static String mutated(String text) {
        int place = random.nextInt(text.length() + 1);
        switch (random.nextInt(3)) {
            case 0:
                return text.substring(0, place);
            case 1:
                return text.substring(0, place) + text.substring(Math.min(place + 1, text.length()));
            default:
                String more = random.nextBoolean() ? pick(ODD) : pick(SOUP);
                return text.substring(0, place) + more + text.substring(place);
        }
    }

    private static String join(List<String> tokens) {
        StringBuilder text = new StringBuilder();
        for (String token : tokens) {
            text.append(text.length() == 0 ? "" : random.nextInt(8) == 0 ? pick(SPACES) : " ").append(token);
        }
        return text.toString();
    }

    private static void numbers(int count) {
        String[] pieces = {
            "0", "1", "5", "9", "12", "000", "2147483648", "9223372036854775807", "99999999999999999999", ".", ".", "e",
            "E", "+", "-", "0x", "0X", "p", "P", "a", "F", "f", "d", "D", "L", "NaN", "Infinity", " ", "\t", "\u0001",
            "_", "\u00a0", "\u0661", "\uff19", "\ud835\udfce", "e-5", "e+300", "e400", "e-400", "p-1074", "p1023",
            "4.9e-324", "1.7976931348623157e308", "1.7976931348623159e308", "2.2250738585072011e-308"};
        for (String text : VALUES) {
            number(text);
        }
        for (String text : pieces) {
            number(text);
        }
        for (int number = 0; number < count; number++) {
            StringBuilder text = new StringBuilder();
            for (int length = 1 + random.nextInt(5); length > 0; length--) {
                text.append(pick(pieces));
            }
            number(text.toString());
        }
    }

    private static void number(String text) {
        print("number", text, parsed(text, Integer::parseInt), parsed(text, Long::parseLong),
            parsed(text, each -> Double.doubleToLongBits(Double.parseDouble(each))));
    }

    private static Object parsed(String text, Function<String, Object> parse) {
        try {
            return parse.apply(text);
        } catch (NumberFormatException error) {
            return null;
        }
    }

    private static void bloomFilters() {
        for (int f = 1; f < 100; f++) {
            for (int n : new int[] {1, 10, 32, 1000}) {
                BloomFilter filter = BloomFilter.createByFn(f, n);
                print("bloom", f, n, filter.getK(), filter.getM());
            }
        }
        for (int length = 0; length < 100; length++) {
            StringBuilder key = new StringBuilder();
            for (int place = 0; place < length; place++) {
                key.append(random.nextInt(10) == 0 ? pick("#", "é", "订", "\ud83d\ude00", "\ud800")
                    : String.valueOf((char) ('0' + random.nextInt(75))));
            }
            int f = 1 + random.nextInt(99);
            int n = 1 + random.nextInt(1000);
            long hash = Hashing.murmur3_128().hashString(key, StandardCharsets.UTF_8).asLong();
            int[] positions = BloomFilter.createByFn(f, n).calcBitPositions(key.toString());
            print("positions", f, n, key.toString(), hash, positions);
        }
    }

    private static String anyCase(String keyword) {
        switch (random.nextInt(6)) {
            case 0:
                return keyword.toLowerCase();
            case 1:
                return keyword.charAt(0) + keyword.substring(1).toLowerCase();
            default:
                return keyword;
        }
    }

    private static String pick(String... choices) {
        return choices[random.nextInt(choices.length)];
    }

    private static void print(Object... columns) {
        output.println(json(Arrays.asList(columns)));
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number) {
            return String.valueOf(value);
        }
        StringBuilder text = new StringBuilder();
        if (value instanceof int[]) {
            return Arrays.toString((int[]) value);
        }
        if (value instanceof List) {
            for (Object each : (List<?>) value) {
                text.append(text.length() == 0 ? "" : ",").append(json(each));
            }
            return "[" + text + "]";
        }
        if (value instanceof Map) {
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) {
                text.append(text.length() == 0 ? "" : ",").append(json(each.getKey())).append(":")
                    .append(json(each.getValue()));
            }
            return "{" + text + "}";
        }
        for (char unit : value.toString().toCharArray()) {
            boolean isPlain = unit >= ' ' && unit < 0x7f && unit != '"' && unit != '\\';
            text.append(isPlain ? String.valueOf(unit) : String.format("\\u%04x", (int) unit));
        }
        return '"' + text.toString() + '"';
    }
}
