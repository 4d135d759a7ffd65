import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.exception.HttpResponseException;
import com.azure.messaging.servicebus.ServiceBusException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.BooleanSupplier;

/** One check, and what checks are written with. */
record Check(String name, Work work) {
    private static final ObjectMapper JSON = new ObjectMapper();

    interface Work {
        /** Returns the evidence; throws if the client's promise is not kept. */
        String run() throws Exception;
    }

    interface Attempt {
        void run() throws Exception;
    }

    void run() {
        long began = System.nanoTime();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("check", name);
        try {
            String evidence = work.run();
            line.put("passed", true);
            line.put("evidence", evidence);
        } catch (Throwable error) {
            line.put("passed", false);
            line.put("evidence", codeOf(error) + ": " + error.getMessage());
        }
        line.put("ms", (System.nanoTime() - began) / 1_000_000);
        write(line);
    }

    static synchronized void write(Map<String, Object> line) {
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static void must(boolean condition, String text) {
        if (!condition) {
            throw new AssertionError(text);
        }
    }

    static void same(Object found, Object expected, String what) {
        must(Objects.equals(found, expected), what + ": " + found + " instead of " + expected);
    }

    /** The reason of an error that has to be one of these: its own, or that of a cause. */
    static String refused(Attempt attempt, String... codes) {
        try {
            attempt.run();
        } catch (Throwable error) {
            for (Throwable each = error; each != null; each = each.getCause()) {
                String code = ownCode(each);
                if (code != null && Arrays.asList(codes).contains(code)) {
                    return code;
                }
            }
            must(false, codeOf(error) + " (" + error.getMessage() + ") instead of " + Arrays.asList(codes));
        }
        throw new AssertionError("nothing was refused instead of " + Arrays.asList(codes));
    }

    static String codeOf(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (ownCode(each) != null) {
                return ownCode(each);
            }
        }
        return error.getClass().getSimpleName();
    }

    private static String ownCode(Throwable error) {
        if (error instanceof ServiceBusException found) {
            return found.getReason().toString();
        }
        if (error instanceof AmqpException found && found.getErrorCondition() != null) {
            return found.getErrorCondition().getErrorCondition();
        }
        if (error instanceof HttpResponseException found && found.getResponse() != null) {
            return String.valueOf(found.getResponse().getStatusCode());
        }
        return error.getCause() == null ? error.getClass().getSimpleName() : null;
    }

    static void until(BooleanSupplier condition, String what, long waitMs) throws InterruptedException {
        long end = System.currentTimeMillis() + waitMs;
        while (!condition.getAsBoolean()) {
            must(System.currentTimeMillis() < end, "not within " + waitMs + " ms: " + what);
            Thread.sleep(100);
        }
    }
}
