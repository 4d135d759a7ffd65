import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Goes through all that the official Java client promises; writes one line of JSON for each check. */
final class Main {
    private static final int AT_A_TIME = 6;
    /** Goes first and alone: pages go by number, and what others make meanwhile would move them. */
    private static final String ALONE = "admin-pages";

    public static void main(String[] arguments) throws Exception {
        Bus.trust(System.getenv("CA_FILE"));
        List<Check> checks = new ArrayList<>();
        checks.addAll(Queues.CHECKS);
        checks.addAll(Sessions.CHECKS);
        checks.addAll(Topics.CHECKS);
        checks.addAll(Administration.CHECKS);
        checks.addAll(Transactions.CHECKS);
        checks.addAll(Failures.CHECKS);
        checks.sort(Comparator.comparing(check -> !check.name().equals(ALONE)));
        String wanted = System.getenv().getOrDefault("CHECKS", "");
        var workers = Executors.newFixedThreadPool(AT_A_TIME);
        for (Check check : checks) {
            if (wanted.isEmpty() || Arrays.asList(wanted.split(",")).contains(check.name())) {
                Runnable work = check::run;
                var done = workers.submit(work);
                if (check.name().equals(ALONE)) {
                    done.get();
                }
            }
        }
        workers.shutdown();
        workers.awaitTermination(15, TimeUnit.MINUTES);
        System.exit(0);
    }
}
