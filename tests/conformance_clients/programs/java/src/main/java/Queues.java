import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Sending to queues, and receiving from them. */
final class Queues {
    static final List<Check> CHECKS = List.of(
            new Check("send-single", Queues::single),
            new Check("send-list", Queues::list),
            new Check("send-batch", Queues::batch),
            new Check("send-large", Queues::large),
            new Check("send-too-large", Queues::tooLarge),
            new Check("schedule", Queues::schedule),
            new Check("schedule-by-property", Queues::scheduleByProperty),
            new Check("cancel-scheduled", Queues::cancel),
            new Check("properties", Queues::properties),
            new Check("annotated-message", Queues::annotated),
            new Check("duplicates", Queues::duplicates),
            new Check("complete", Queues::complete),
            new Check("abandon", Queues::abandon),
            new Check("dead-letter", Queues::deadLetter),
            new Check("defer", Queues::defer),
            new Check("receive-and-delete", Queues::receiveAndDelete),
            new Check("renew-lock", Queues::renew),
            new Check("renew-lock-by-itself", Queues::renewByItself),
            new Check("lock-lost", Queues::lockLost),
            new Check("settle-by-another-receiver", Queues::anotherReceiver),
            new Check("delivery-limit", Queues::deliveryLimit),
            new Check("expiry", Queues::expiry),
            new Check("peek", Queues::peek),
            new Check("stream", Queues::stream),
            new Check("prefetch", Queues::prefetch),
            new Check("forward", Queues::forward));

    private static String single() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("one"));
        ServiceBusReceivedMessage message = Bus.receive(Bus.receiver(queue), 1).get(0);
        Check.same(message.getBody().toString(), "one", "body");
        return "sequence number " + message.getSequenceNumber();
    }

    private static String list() {
        String queue = Bus.queue();
        Bus.sender(queue).sendMessages(List.of(Bus.text("1"), Bus.text("2"), Bus.text("3")));
        Check.same(Bus.bodies(Bus.receive(Bus.receiver(queue), 3)), List.of("1", "2", "3"), "bodies");
        return "3 messages, in order";
    }

    private static String batch() {
        String queue = Bus.queue();
        var sender = Bus.sender(queue);
        var batch = sender.createMessageBatch();
        while (batch.tryAddMessage(Bus.text("x".repeat(30_000)))) { }
        Check.must(batch.getCount() >= 7, "a batch took " + batch.getCount() + " messages only");
        sender.sendMessages(batch);
        Bus.receive(Bus.deleting(queue), batch.getCount());
        return batch.getCount() + " messages, " + batch.getSizeInBytes() + " of at most " + batch.getMaxSizeInBytes() + " bytes";
    }

    private static String large() {
        String queue = Bus.queue();
        byte[] body = new byte[240 * 1024];
        Arrays.fill(body, (byte) 7);
        Bus.send(queue, new ServiceBusMessage(body));
        byte[] found = Bus.receive(Bus.receiver(queue), 1).get(0).getBody().toBytes();
        Check.must(Arrays.equals(found, body), "the body came back changed");
        return body.length + " bytes";
    }

    private static String tooLarge() {
        String queue = Bus.queue();
        return Check.refused(() -> Bus.send(queue, new ServiceBusMessage(new byte[300 * 1024])), "MESSAGE_SIZE_EXCEEDED");
    }

    private static String schedule() throws Exception {
        String queue = Bus.queue();
        OffsetDateTime due = OffsetDateTime.now().plusSeconds(8);
        Long number = Bus.sender(queue).scheduleMessage(Bus.text("later"), due);
        var receiver = Bus.receiver(queue);
        Check.same(receiver.peekMessage().getState(), ServiceBusMessageState.SCHEDULED, "state");
        Bus.nothing(receiver);
        Bus.receive(receiver, 1);
        long late = Duration.between(due, OffsetDateTime.now()).toMillis();
        Check.must(late >= -500, "it came " + -late + " ms early");
        return "number " + number + ", came " + late + " ms after its time";
    }

    private static String scheduleByProperty() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("later").setScheduledEnqueueTime(OffsetDateTime.now().plusSeconds(3)));
        var receiver = Bus.receiver(queue);
        Bus.nothing(receiver);
        Bus.receive(receiver, 1);
        return "came when it was due";
    }

    private static String cancel() {
        String queue = Bus.queue();
        var sender = Bus.sender(queue);
        List<Long> numbers = new ArrayList<>();
        sender.scheduleMessages(List.of(Bus.text("1"), Bus.text("2")), OffsetDateTime.now().plusSeconds(4)).forEach(numbers::add);
        sender.cancelScheduledMessage(numbers.get(0));
        var receiver = Bus.receiver(queue);
        Check.same(Bus.bodies(Bus.receive(receiver, 1)), List.of("2"), "bodies");
        Bus.nothing(receiver);
        return "cancelled " + numbers.get(0) + " of " + numbers.size();
    }

    private static String properties() {
        String queue = Bus.queue();
        Map<String, Object> given = new LinkedHashMap<>();
        given.put("text", "ä");
        given.put("whole", 7);
        given.put("long", 1L << 40);
        given.put("fraction", 1.5);
        given.put("truth", true);
        given.put("when", OffsetDateTime.parse("2023-11-14T22:13:20Z"));
        ServiceBusMessage message = Bus.text("body").setMessageId("id-1").setContentType("text/plain").setCorrelationId("c-1")
                .setPartitionKey("p").setSubject("s").setTo("t").setReplyTo("r").setReplyToSessionId("rs")
                .setTimeToLive(Duration.ofMinutes(10));
        message.getApplicationProperties().putAll(given);
        Bus.send(queue, message);
        ServiceBusReceivedMessage found = Bus.receive(Bus.receiver(queue), 1).get(0);
        Check.same(
                List.of(found.getMessageId(), found.getContentType(), found.getCorrelationId(), found.getPartitionKey(),
                        found.getSubject(), found.getTo(), found.getReplyTo(), found.getReplyToSessionId(), found.getTimeToLive()),
                List.of("id-1", "text/plain", "c-1", "p", "s", "t", "r", "rs", Duration.ofMinutes(10)), "properties");
        given.forEach((name, value) -> Check.same(found.getApplicationProperties().get(name), value, name));
        Check.must(found.getEnqueuedTime() != null && found.getExpiresAt() != null && found.getLockedUntil() != null, "times");
        Check.same(found.getDeliveryCount(), 0L, "delivery count");
        return "all properties, and six types of application properties";
    }

    private static String annotated() {
        String queue = Bus.queue();
        Bus.send(queue,
                new ServiceBusMessage(AmqpMessageBody.fromValue("value")),
                new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of(1L, "two"))),
                new ServiceBusMessage(AmqpMessageBody.fromData(new byte[] {1, 2})));
        var found = Bus.receive(Bus.receiver(queue), 3).stream().map(each -> each.getRawAmqpMessage().getBody()).toList();
        Check.same(found.get(0).getValue(), "value", "value");
        Check.same(found.get(1).getSequence(), List.of(1L, "two"), "sequence");
        Check.must(Arrays.equals(found.get(2).getFirstData(), new byte[] {1, 2}), "data");
        return "value, sequence and data";
    }

    private static String duplicates() {
        String queue = Bus.queue(new CreateQueueOptions().setDuplicateDetectionRequired(true));
        Bus.send(queue, Bus.text("1").setMessageId("same"), Bus.text("2").setMessageId("same"), Bus.text("3").setMessageId("other"));
        Check.same(Bus.bodies(Bus.receive(Bus.receiver(queue), 2)), List.of("1", "3"), "bodies");
        return "the second with the same id was dropped";
    }

    private static String complete() throws Exception {
        String queue = Bus.queue(Bus.shortLocks());
        Bus.send(queue, Bus.text("1"));
        var receiver = Bus.receiver(queue);
        receiver.complete(Bus.receive(receiver, 1).get(0));
        Thread.sleep(5_500);
        Bus.nothing(receiver);
        return "gone for good";
    }

    private static String abandon() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("1"));
        var receiver = Bus.receiver(queue);
        receiver.abandon(Bus.receive(receiver, 1).get(0), new AbandonOptions().setPropertiesToModify(Map.of("added", "a")));
        ServiceBusReceivedMessage again = Bus.receive(receiver, 1).get(0);
        Check.same(again.getDeliveryCount(), 1L, "delivery count");
        Check.same(again.getApplicationProperties(), Map.of("added", "a"), "application properties");
        return "came again, delivery count 1, with the added property";
    }

    private static String deadLetter() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("1"));
        var receiver = Bus.receiver(queue);
        receiver.deadLetter(Bus.receive(receiver, 1).get(0), new DeadLetterOptions().setDeadLetterReason("why")
                .setDeadLetterErrorDescription("long").setPropertiesToModify(Map.of("more", "m")));
        ServiceBusReceivedMessage dead = Bus.receive(Bus.deadLetters(queue), 1).get(0);
        Check.same(List.of(dead.getDeadLetterReason(), dead.getDeadLetterErrorDescription()), List.of("why", "long"), "reason");
        Check.same(dead.getApplicationProperties().get("more"), "m", "added property");
        return "with reason, description and an added property";
    }

    private static String defer() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("1"));
        var receiver = Bus.receiver(queue);
        ServiceBusReceivedMessage message = Bus.receive(receiver, 1).get(0);
        receiver.defer(message, new DeferOptions().setPropertiesToModify(Map.of("added", "a")));
        Bus.nothing(receiver);
        ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(message.getSequenceNumber());
        Check.same(deferred.getState(), ServiceBusMessageState.DEFERRED, "state");
        Check.same(deferred.getApplicationProperties().get("added"), "a", "added property");
        receiver.complete(deferred);
        Check.same(receiver.peekMessage(), null, "message left");
        return "by sequence number " + message.getSequenceNumber();
    }

    private static String receiveAndDelete() {
        String queue = Bus.queue(Bus.shortLocks());
        Bus.send(queue, Bus.text("1"), Bus.text("2"));
        var receiver = Bus.deleting(queue);
        Bus.receive(receiver, 2);
        Check.same(receiver.peekMessage(), null, "message left");
        return "2 messages, none left";
    }

    private static String renew() throws Exception {
        String queue = Bus.queue(Bus.shortLocks());
        Bus.send(queue, Bus.text("1"));
        var receiver = Bus.receiver(queue);
        ServiceBusReceivedMessage message = Bus.receive(receiver, 1).get(0);
        OffsetDateTime first = message.getLockedUntil();
        Thread.sleep(3_000);
        Duration longer = Duration.between(first, receiver.renewMessageLock(message));
        Check.must(longer.toMillis() > 0, "the lock does not end later");
        Thread.sleep(3_500);
        receiver.complete(message);
        return longer.toMillis() + " ms longer, completed after the first lock's end";
    }

    private static String renewByItself() throws Exception {
        String queue = Bus.queue(Bus.shortLocks());
        Bus.send(queue, Bus.text("1"));
        var receiver = Bus.receiver(queue);
        ServiceBusReceivedMessage message = Bus.receive(receiver, 1).get(0);
        List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
        receiver.renewMessageLock(message, Duration.ofMinutes(1), errors::add);
        Thread.sleep(8_000);
        receiver.complete(message);
        Check.same(errors, List.of(), "errors");
        return "completed 8 s after it was locked for 5 s";
    }

    private static String lockLost() throws Exception {
        String queue = Bus.queue(Bus.shortLocks());
        Bus.send(queue, Bus.text("1"));
        var receiver = Bus.receiver(queue);
        ServiceBusReceivedMessage message = Bus.receive(receiver, 1).get(0);
        Thread.sleep(6_000);
        String code = Check.refused(() -> receiver.complete(message), "MESSAGE_LOCK_LOST");
        Check.same(Bus.receive(receiver, 1).get(0).getDeliveryCount(), 1L, "delivery count");
        return code;
    }

    private static String anotherReceiver() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("1"));
        var first = Bus.receiver(queue);
        ServiceBusReceivedMessage message = Bus.receive(first, 1).get(0);
        first.close();
        var other = Bus.receiver(queue);
        other.complete(message);
        Check.same(other.peekMessage(), null, "message left");
        return "completed by its lock token after its receiver was closed";
    }

    private static String deliveryLimit() {
        String queue = Bus.queue(new CreateQueueOptions().setMaxDeliveryCount(2));
        Bus.send(queue, Bus.text("1"));
        var receiver = Bus.receiver(queue);
        receiver.abandon(Bus.receive(receiver, 1).get(0));
        receiver.abandon(Bus.receive(receiver, 1).get(0));
        String reason = Bus.receive(Bus.deadLetters(queue), 1).get(0).getDeadLetterReason();
        Check.same(reason, "MaxDeliveryCountExceeded", "reason");
        return reason;
    }

    private static String expiry() throws Exception {
        String queue = Bus.queue(new CreateQueueOptions().setDeadLetteringOnMessageExpiration(true));
        Bus.send(queue, Bus.text("1").setTimeToLive(Duration.ofSeconds(1)));
        Thread.sleep(1_500);
        Bus.nothing(Bus.receiver(queue));
        String reason = Bus.receive(Bus.deadLetters(queue), 1).get(0).getDeadLetterReason();
        Check.same(reason, "TTLExpiredException", "reason");
        return reason;
    }

    private static String peek() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("1"), Bus.text("2"), Bus.text("3"), Bus.text("4"));
        var receiver = Bus.receiver(queue);
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        receiver.peekMessages(2).forEach(found::add);
        found.add(receiver.peekMessage());
        Check.same(Bus.bodies(found), List.of("1", "2", "3"), "bodies");
        var again = receiver.peekMessages(10, found.get(1).getSequenceNumber());
        Check.same(Bus.bodies(again), List.of("2", "3", "4"), "from a sequence number");
        Bus.receive(receiver, 4);
        return "peeked on and from a number, all still there";
    }

    private static String stream() throws Exception {
        String queue = Bus.queue(Bus.shortLocks());
        List<String> found = Collections.synchronizedList(new ArrayList<>());
        List<String> errors = Collections.synchronizedList(new ArrayList<>());
        ServiceBusProcessorClient processor = Bus.CLIENT.processor().queueName(queue).maxConcurrentCalls(3)
                .processMessage(context -> {
                    String body = context.getMessage().getBody().toString();
                    if (body.equals("fails") && context.getMessage().getDeliveryCount() == 0) {
                        throw new IllegalStateException("on purpose");
                    }
                    if (body.equals("slow")) {
                        pause(7_000);
                    }
                    found.add(body + context.getMessage().getDeliveryCount());
                })
                .processError(context -> errors.add(context.getErrorSource().toString()))
                .buildProcessorClient();
        processor.start();
        Bus.send(queue, Bus.text("slow"), Bus.text("fails"), Bus.text("quick"));
        Check.until(() -> found.size() == 3, "all processed", 30_000);
        Check.until(() -> Bus.ADMIN.getQueueRuntimeProperties(queue).getTotalMessageCount() == 0, "all completed", 10_000);
        processor.close();
        Check.same(found.stream().sorted().toList(), List.of("fails1", "quick0", "slow0"), "processed");
        Check.same(errors, List.of("USER_CALLBACK"), "errors");
        return "completed by itself, renewed by itself, abandoned after an error";
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String prefetch() {
        String queue = Bus.queue();
        for (int number = 0; number < 20; number++) {
            Bus.send(queue, Bus.text(String.valueOf(number)));
        }
        ServiceBusReceiverClient receiver =
                Bus.CLIENT.receiver().queueName(queue).prefetchCount(10).disableAutoComplete().buildClient();
        List<ServiceBusReceivedMessage> found = Bus.receive(receiver, 20);
        found.forEach(receiver::complete);
        Check.same(receiver.peekMessage(), null, "message left");
        return "20 messages, 10 of them ahead";
    }

    private static String forward() {
        String target = Bus.queue();
        String queue = Bus.queue(new CreateQueueOptions().setForwardTo(target));
        Bus.send(queue, Bus.text("1"));
        return "came to the target with number " + Bus.receive(Bus.receiver(target), 1).get(0).getSequenceNumber();
    }
}
