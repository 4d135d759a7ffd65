import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The administration client. */
final class Administration {
    static final List<Check> CHECKS = List.of(
            new Check("admin-queue", Administration::queues),
            new Check("admin-topic", Administration::topics),
            new Check("admin-subscription", Administration::subscriptions),
            new Check("admin-rules", Administration::rules),
            new Check("admin-counts", Administration::counts),
            new Check("admin-namespace", Administration::namespace),
            new Check("admin-errors", Administration::errors),
            new Check("admin-pages", Administration::pages));

    private static String queues() {
        String target = Bus.queue();
        String name = Bus.queue(new CreateQueueOptions()
                .setLockDuration(Duration.ofSeconds(45)).setMaxSizeInMegabytes(2048).setDuplicateDetectionRequired(true)
                .setDefaultMessageTimeToLive(Duration.ofDays(2)).setDeadLetteringOnMessageExpiration(true)
                .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(5)).setMaxDeliveryCount(7)
                .setBatchedOperationsEnabled(false).setUserMetadata("notes").setAutoDeleteOnIdle(Duration.ofHours(1))
                .setForwardDeadLetteredMessagesTo(target));
        QueueProperties queue = Bus.ADMIN.getQueue(name);
        Check.same(
                List.of(queue.getLockDuration(), queue.getMaxSizeInMegabytes(), queue.isDuplicateDetectionRequired(),
                        queue.getDefaultMessageTimeToLive(), queue.isDeadLetteringOnMessageExpiration(),
                        queue.getDuplicateDetectionHistoryTimeWindow(), queue.getMaxDeliveryCount(),
                        queue.isBatchedOperationsEnabled(), queue.getUserMetadata(), queue.getAutoDeleteOnIdle()),
                List.of(Duration.ofSeconds(45), 2048L, true, Duration.ofDays(2), true, Duration.ofMinutes(5), 7, false, "notes",
                        Duration.ofHours(1)),
                "settings");
        Check.must(queue.getForwardDeadLetteredMessagesTo().endsWith(target), "dead letters go elsewhere");
        QueueProperties updated = Bus.ADMIN.updateQueue(queue.setMaxDeliveryCount(9).setLockDuration(Duration.ofSeconds(20)));
        Check.same(updated.getMaxDeliveryCount() + " " + updated.getLockDuration(), "9 PT20S", "after the update");
        Check.must(Bus.ADMIN.listQueues().stream().anyMatch(each -> each.getName().equals(name)), "it is not listed");
        Check.same(Bus.ADMIN.getQueueExists(name), true, "exists");
        Bus.ADMIN.deleteQueue(name);
        Check.same(Bus.ADMIN.getQueueExists(name), false, "exists after it was deleted");
        return "11 settings, updated, listed, deleted";
    }

    private static String topics() {
        String name = Bus.topic();
        Bus.ADMIN.deleteTopic(name);
        Bus.ADMIN.createTopic(name, new CreateTopicOptions().setDefaultMessageTimeToLive(Duration.ofDays(3))
                .setMaxSizeInMegabytes(3072).setUserMetadata("notes").setOrderingSupported(true));
        TopicProperties topic = Bus.ADMIN.getTopic(name);
        Check.same(List.of(topic.getDefaultMessageTimeToLive(), topic.getMaxSizeInMegabytes(), topic.getUserMetadata()),
                List.of(Duration.ofDays(3), 3072L, "notes"), "settings");
        Check.same(Bus.ADMIN.updateTopic(topic.setUserMetadata("new")).getUserMetadata(), "new", "after the update");
        Check.must(Bus.ADMIN.listTopics().stream().anyMatch(each -> each.getName().equals(name)), "it is not listed");
        Check.same(Bus.ADMIN.getTopicRuntimeProperties(name).getSubscriptionCount(), 0, "subscriptions");
        return "4 settings, updated, listed, counted";
    }

    private static String subscriptions() {
        String topic = Bus.topic();
        Bus.ADMIN.createSubscription(topic, "s", new CreateSubscriptionOptions()
                .setLockDuration(Duration.ofSeconds(25)).setSessionRequired(true)
                .setDefaultMessageTimeToLive(Duration.ofDays(1)).setDeadLetteringOnMessageExpiration(true)
                .setEnableDeadLetteringOnFilterEvaluationExceptions(false).setMaxDeliveryCount(4).setUserMetadata("notes"));
        SubscriptionProperties found = Bus.ADMIN.getSubscription(topic, "s");
        Check.same(
                List.of(found.getLockDuration(), found.isSessionRequired(), found.getDefaultMessageTimeToLive(),
                        found.isDeadLetteringOnMessageExpiration(), found.isDeadLetteringOnFilterEvaluationExceptions(),
                        found.getMaxDeliveryCount(), found.getUserMetadata()),
                List.of(Duration.ofSeconds(25), true, Duration.ofDays(1), true, false, 4, "notes"), "settings");
        Check.same(Bus.ADMIN.updateSubscription(found.setMaxDeliveryCount(5)).getMaxDeliveryCount(), 5, "after the update");
        Check.same(Bus.ADMIN.listSubscriptions(topic).stream().map(SubscriptionProperties::getSubscriptionName).toList(),
                List.of("s"), "listed");
        Bus.publish(topic, Bus.text("1").setSessionId("x"));
        Check.same(Bus.ADMIN.getSubscriptionRuntimeProperties(topic, "s").getActiveMessageCount(), 1, "messages");
        Bus.ADMIN.deleteSubscription(topic, "s");
        Check.same(Bus.ADMIN.getSubscriptionExists(topic, "s"), false, "exists after it was deleted");
        return "7 settings, updated, listed, counted, deleted";
    }

    private static List<String> ruleNames(String topic) {
        return Bus.ADMIN.listRules(topic, "s").stream().map(RuleProperties::getName).sorted().toList();
    }

    private static String rules() {
        String topic = Bus.topic();
        Bus.subscription(topic, "s");
        Check.same(ruleNames(topic), List.of("$Default"), "rules of a new subscription");
        SqlRuleFilter filter = new SqlRuleFilter("a = @a");
        filter.getParameters().put("@a", "1"); // this client sends values of every type as strings
        SqlRuleAction action = new SqlRuleAction("SET b = 2");
        Bus.ADMIN.createRule(topic, "sql", "s", new CreateRuleOptions(filter).setAction(action));
        CorrelationRuleFilter correlation = new CorrelationRuleFilter().setLabel("s");
        correlation.getProperties().putAll(Map.of("text", "t", "number", "2"));
        Bus.ADMIN.createRule(topic, "correlation", "s", new CreateRuleOptions(correlation));
        RuleProperties sql = Bus.ADMIN.getRule(topic, "s", "sql");
        SqlRuleFilter found = (SqlRuleFilter) sql.getFilter();
        Check.same(found.getSqlExpression() + found.getParameters(), "a = @a{@a=1}", "filter");
        Check.same(((SqlRuleAction) sql.getAction()).getSqlExpression(), "SET b = 2", "action");
        RuleProperties other = Bus.ADMIN.getRule(topic, "s", "correlation");
        Check.same(((CorrelationRuleFilter) other.getFilter()).getProperties(),
                Map.of("text", "t", "number", "2"), "properties");
        RuleProperties updated = Bus.ADMIN.updateRule(topic, "s", sql.setFilter(new SqlRuleFilter("c = 1")));
        Check.same(((SqlRuleFilter) updated.getFilter()).getSqlExpression(), "c = 1", "after the update");
        Bus.ADMIN.deleteRule(topic, "s", "$Default");
        Check.same(ruleNames(topic), List.of("correlation", "sql"), "after one was deleted");
        CreateRuleOptions bad = new CreateRuleOptions(new SqlRuleFilter("a = = 1"));
        return "SQL and correlation, created, read, updated, deleted; a wrong one refused with "
                + Check.refused(() -> Bus.ADMIN.createRule(topic, "bad", "s", bad), "400");
    }

    private static String counts() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("1"), Bus.text("2"), Bus.text("3"));
        Bus.sender(queue).scheduleMessage(Bus.text("4"), OffsetDateTime.now().plusMinutes(1));
        var receiver = Bus.receiver(queue);
        receiver.deadLetter(Bus.receive(receiver, 1).get(0));
        var counts = Bus.ADMIN.getQueueRuntimeProperties(queue);
        Check.same(List.of(counts.getActiveMessageCount(), counts.getDeadLetterMessageCount(), counts.getScheduledMessageCount()),
                List.of(2, 1, 1), "counts");
        Check.must(counts.getSizeInBytes() > 0 && counts.getCreatedAt() != null, "size and time");
        return "2 active, 1 dead-lettered, 1 scheduled, " + counts.getSizeInBytes() + " bytes";
    }

    private static String namespace() {
        var found = Bus.ADMIN.getNamespaceProperties();
        Check.must(found.getName() != null && found.getCreatedTime() != null, "name and time");
        return found.getName() + ", " + found.getMessagingSku();
    }

    private static String errors() {
        String queue = Bus.queue();
        CreateQueueOptions tooLong = new CreateQueueOptions().setLockDuration(Duration.ofMinutes(10));
        return String.join(", ",
                Check.refused(() -> Bus.ADMIN.createQueue(queue), "409"),
                Check.refused(() -> Bus.ADMIN.getQueue("missing"), "404"),
                Check.refused(() -> Bus.ADMIN.deleteTopic("missing"), "404"),
                Check.refused(() -> Bus.ADMIN.createQueue(queue + "-bad", tooLong), "400"));
    }

    private static String pages() {
        List<String> names = new ArrayList<>();
        for (int number = 0; number < 105; number++) {
            names.add(Bus.queue());
        }
        List<String> found = Bus.ADMIN.listQueues().stream().map(QueueProperties::getName).toList();
        Check.must(found.containsAll(names), "some are missing");
        Check.same((long) found.size(), found.stream().distinct().count(), "no queue twice");
        return "105 queues and more, on pages of the client's own size";
    }
}
