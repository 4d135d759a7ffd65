import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Topics: every kind of filter, actions, rules by the client. */
final class Topics {
    static final List<Check> CHECKS = List.of(
            new Check("filter-default", Topics::byDefault),
            new Check("filter-true-false", Topics::trueAndFalse),
            new Check("filter-sql", Topics::sql),
            new Check("filter-sql-parameters", Topics::parameters),
            new Check("filter-correlation", Topics::correlation),
            new Check("action", Topics::action),
            new Check("several-rules", Topics::severalRules),
            new Check("rule-manager", Topics::ruleManager),
            new Check("subscription-dead-letter", Topics::deadLetter),
            new Check("topic-schedule", Topics::schedule));

    private static ServiceBusMessage with(String body, Map<String, Object> properties) {
        ServiceBusMessage message = Bus.text(body);
        message.getApplicationProperties().putAll(properties);
        return message;
    }

    private static List<String> through(RuleFilter filter, ServiceBusMessage... messages) {
        String topic = Bus.topic();
        Bus.subscription(topic, "filtered", new CreateRuleOptions(filter));
        Bus.subscription(topic, "all");
        Bus.publish(topic, messages);
        Bus.receive(Bus.of(topic, "all"), messages.length);
        return Bus.bodies(Bus.whatComes(Bus.of(topic, "filtered"), messages.length, Duration.ofSeconds(2)));
    }

    private static String byDefault() {
        String topic = Bus.topic();
        Bus.subscription(topic, "one");
        Bus.subscription(topic, "two");
        Bus.publish(topic, Bus.text("1"));
        Bus.receive(Bus.of(topic, "one"), 1);
        Bus.receive(Bus.of(topic, "two"), 1);
        return "each subscription got a copy";
    }

    private static String trueAndFalse() {
        Check.same(through(new TrueRuleFilter(), Bus.text("1")), List.of("1"), "with TrueRuleFilter");
        Check.same(through(new FalseRuleFilter(), Bus.text("1")), List.of(), "with FalseRuleFilter");
        return "all, and none";
    }

    private static String sql() {
        String expression = "(amount > 100 AND kind IN ('a', 'b') AND name LIKE 'x%') OR sys.Label = 'always' OR EXISTS(urgent)";
        List<String> found = through(new SqlRuleFilter(expression),
                with("1", Map.of("amount", 200, "kind", "a", "name", "xy")),
                with("2", Map.of("amount", 50, "kind", "a", "name", "xy")),
                with("3", Map.of("amount", 200, "kind", "c", "name", "xy")),
                Bus.text("4").setSubject("always"), with("5", Map.of("urgent", true)), Bus.text("6"));
        Check.same(found, List.of("1", "4", "5"), "bodies");
        return expression;
    }

    private static String parameters() {
        // Whatever the type of a parameter is, this client sends it as a string.
        SqlRuleFilter filter = new SqlRuleFilter("kind = @kind");
        filter.getParameters().put("@kind", "b");
        List<String> found = through(filter, with("1", Map.of("kind", "a")), with("2", Map.of("kind", "b")));
        Check.same(found, List.of("2"), "bodies");
        return "kind = @kind";
    }

    private static String correlation() {
        CorrelationRuleFilter filter = new CorrelationRuleFilter("c").setLabel("s");
        filter.getProperties().put("colour", "red");
        Map<String, Object> red = Map.of("colour", "red", "more", 1);
        List<String> found = through(filter,
                with("1", red).setCorrelationId("c").setSubject("s"),
                with("2", red).setCorrelationId("c").setSubject("t"),
                Bus.text("3").setCorrelationId("c").setSubject("s"));
        Check.same(found, List.of("1"), "bodies");
        CorrelationRuleFilter system = new CorrelationRuleFilter().setMessageId("m").setTo("t").setReplyTo("r")
                .setSessionId("i").setReplyToSessionId("ri").setContentType("text/plain");
        found = through(system,
                Bus.text("4").setMessageId("m").setTo("t").setReplyTo("r").setSessionId("i").setReplyToSessionId("ri")
                        .setContentType("text/plain"),
                Bus.text("5"));
        Check.same(found, List.of("4"), "by system properties");
        return "by nine properties, all of which have to fit";
    }

    private static String action() {
        String action = "SET sys.Label = 'seen'; SET amount = amount * 2; SET added = 'a'; REMOVE kind";
        String topic = Bus.topic();
        Bus.subscription(topic, "changed",
                new CreateRuleOptions(new TrueRuleFilter()).setAction(new SqlRuleAction(action)));
        Bus.subscription(topic, "all");
        Bus.publish(topic, with("1", Map.of("amount", 4L, "kind", "k")).setSubject("s"));
        ServiceBusReceivedMessage changed = Bus.receive(Bus.of(topic, "changed"), 1).get(0);
        Check.same(changed.getSubject(), "seen", "subject");
        Map<String, Object> expected = Map.of("amount", 8L, "added", "a", "RuleName", "rule");
        Check.same(changed.getApplicationProperties(), expected, "application properties");
        ServiceBusReceivedMessage plain = Bus.receive(Bus.of(topic, "all"), 1).get(0);
        Check.same(plain.getApplicationProperties(), Map.of("amount", 4L, "kind", "k"), "of the other subscription");
        return action;
    }

    private static String severalRules() {
        String topic = Bus.topic();
        Bus.subscription(topic, "s", new CreateRuleOptions(new SqlRuleFilter("a = 1")));
        Bus.ADMIN.createRule(topic, "other", "s", new CreateRuleOptions(new SqlRuleFilter("b = 1")));
        Bus.publish(topic, with("both", Map.of("a", 1, "b", 1)), with("b", Map.of("b", 1)));
        Check.same(Bus.bodies(Bus.receive(Bus.of(topic, "s"), 2)), List.of("both", "b"), "bodies");
        return "one copy, though two rules fit";
    }

    private static String ruleManager() {
        String topic = Bus.topic();
        Bus.subscription(topic, "s");
        try (var manager = Bus.CLIENT.ruleManager().topicName(topic).subscriptionName("s").buildClient()) {
            manager.deleteRule("$Default");
            manager.createRule("sql",
                    new CreateRuleOptions(new SqlRuleFilter("a = 1")).setAction(new SqlRuleAction("SET b = 2")));
            CorrelationRuleFilter correlation = new CorrelationRuleFilter().setLabel("s");
            correlation.getProperties().put("c", 3);
            manager.createRule("correlation", new CreateRuleOptions(correlation));
            Map<String, RuleProperties> rules = new TreeMap<>();
            manager.listRules().forEach(rule -> rules.put(rule.getName(), rule));
            Check.same(List.copyOf(rules.keySet()), List.of("correlation", "sql"), "rules");
            Check.same(((SqlRuleFilter) rules.get("sql").getFilter()).getSqlExpression(), "a = 1", "expression");
            Check.same(((CorrelationRuleFilter) rules.get("correlation").getFilter()).getLabel(), "s", "subject");
        }
        Bus.publish(topic, with("1", Map.of("a", 1)), Bus.text("2"), with("3", Map.of("c", 3)).setSubject("s"));
        List<ServiceBusReceivedMessage> found = Bus.receive(Bus.of(topic, "s"), 2);
        Check.same(Bus.bodies(found), List.of("1", "3"), "bodies");
        Check.same(String.valueOf(found.get(0).getApplicationProperties().get("b")), "2", "set by the action");
        return "deleted, created, listed and in force";
    }

    private static String deadLetter() {
        String topic = Bus.topic();
        Bus.subscription(topic, "s");
        Bus.publish(topic, Bus.text("1"));
        var receiver = Bus.of(topic, "s");
        receiver.deadLetter(Bus.receive(receiver, 1).get(0), new DeadLetterOptions().setDeadLetterReason("why"));
        var letters = Bus.CLIENT.receiver().topicName(topic).subscriptionName("s").subQueue(SubQueue.DEAD_LETTER_QUEUE)
                .disableAutoComplete().buildClient();
        Check.same(Bus.receive(letters, 1).get(0).getDeadLetterReason(), "why", "reason");
        Bus.nothing(receiver);
        return "with its reason";
    }

    private static String schedule() {
        String topic = Bus.topic();
        Bus.subscription(topic, "s");
        var sender = Bus.topicSender(topic);
        List<Long> numbers = new ArrayList<>();
        sender.scheduleMessages(List.of(Bus.text("1"), Bus.text("2")), OffsetDateTime.now().plusSeconds(3)).forEach(numbers::add);
        sender.cancelScheduledMessages(List.of(numbers.get(0)));
        var receiver = Bus.of(topic, "s");
        Check.same(Bus.bodies(Bus.receive(receiver, 1)), List.of("2"), "bodies");
        Bus.nothing(receiver);
        return "one came, one was cancelled";
    }
}
