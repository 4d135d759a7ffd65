import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/** Sessions: locks, state, order, and what is refused. */
final class Sessions {
    static final List<Check> CHECKS = List.of(
            new Check("session-accept", Sessions::accepted),
            new Check("session-next", Sessions::next),
            new Check("session-none", Sessions::none),
            new Check("session-state", Sessions::state),
            new Check("session-locked", Sessions::locked),
            new Check("session-renew", Sessions::renew),
            new Check("session-lock-lost", Sessions::lockLost),
            new Check("session-settle", Sessions::settle),
            new Check("session-peek", Sessions::peek),
            new Check("session-receive-and-delete", Sessions::receiveAndDelete),
            new Check("session-stream", Sessions::stream),
            new Check("session-needed", Sessions::needed),
            new Check("session-subscription", Sessions::ofSubscription));

    private static String queue() {
        return Bus.queue(new CreateQueueOptions().setSessionRequired(true));
    }

    private static String shortQueue() {
        return Bus.queue(Bus.shortLocks().setSessionRequired(true));
    }

    private static ServiceBusMessage in(String session, String body) {
        return Bus.text(body).setSessionId(session);
    }

    private static ServiceBusSessionReceiverClient sessions(String queue) {
        return Bus.CLIENT.sessionReceiver().queueName(queue).disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient();
    }

    private static ServiceBusReceiverClient accept(String queue, String session) {
        return sessions(queue).acceptSession(session);
    }

    private static String accepted() {
        String queue = queue();
        Bus.send(queue, in("a", "a1"), in("b", "b1"), in("a", "a2"), in("b", "b2"));
        ServiceBusReceiverClient receiver = accept(queue, "b");
        List<ServiceBusReceivedMessage> found = Bus.receive(receiver, 2);
        Check.same(Bus.bodies(found), List.of("b1", "b2"), "bodies");
        Check.same(List.of(receiver.getSessionId(), found.get(0).getSessionId()), List.of("b", "b"), "session");
        found.forEach(receiver::complete);
        receiver.close();
        return "only its own messages, in order";
    }

    private static String next() {
        String queue = queue();
        Bus.send(queue, in("a", "1"), in("b", "2"));
        Set<String> found = new TreeSet<>();
        for (int number = 0; number < 2; number++) {
            found.add(sessions(queue).acceptNextSession().getSessionId());
        }
        Check.same(found, Set.of("a", "b"), "sessions");
        return "each got a session of its own";
    }

    private static String none() {
        String queue = queue();
        var impatient = Bus.client(Bus.STRING, 0, Duration.ofSeconds(4))
                .sessionReceiver().queueName(queue).disableAutoComplete().buildClient();
        return Check.refused(impatient::acceptNextSession, "SERVICE_TIMEOUT", "com.microsoft:timeout", "IllegalStateException");
    }

    private static String state() throws Exception {
        String queue = queue();
        ServiceBusReceiverClient receiver = accept(queue, "s");
        byte[] none = receiver.getSessionState();
        Check.must(none == null || none.length == 0, "a new session has a state");
        receiver.setSessionState("step 3".getBytes());
        receiver.close();
        Thread.sleep(500); // it closes in the background, and would give the next link the same name
        ServiceBusReceiverClient again = accept(queue, "s");
        Check.same(new String(again.getSessionState()), "step 3", "state");
        again.setSessionState(null);
        return "kept when the session was closed and opened again";
    }

    private static String locked() {
        String queue = queue();
        accept(queue, "s");
        var other = Bus.client(Bus.STRING, 0).sessionReceiver().queueName(queue).disableAutoComplete().buildClient();
        return Check.refused(() -> other.acceptSession("s"), "SESSION_CANNOT_BE_LOCKED", "com.microsoft:session-cannot-be-locked");
    }

    private static String renew() throws Exception {
        String queue = shortQueue();
        Bus.send(queue, in("s", "1"));
        ServiceBusReceiverClient receiver = accept(queue, "s");
        ServiceBusReceivedMessage message = Bus.receive(receiver, 1).get(0);
        Thread.sleep(3_000);
        OffsetDateTime until = receiver.renewSessionLock();
        Check.must(until.isAfter(OffsetDateTime.now().plusSeconds(3)), "the lock does not end later");
        Thread.sleep(3_500);
        receiver.complete(message);
        return "completed after the first lock's end";
    }

    private static String lockLost() throws Exception {
        String queue = shortQueue();
        Bus.send(queue, in("s", "1"));
        ServiceBusReceiverClient receiver = accept(queue, "s");
        ServiceBusReceivedMessage message = Bus.receive(receiver, 1).get(0);
        Thread.sleep(6_500);
        String code = Check.refused(() -> receiver.complete(message), "SESSION_LOCK_LOST", "MESSAGE_LOCK_LOST");
        Check.same(Bus.receive(accept(queue, "s"), 1).get(0).getDeliveryCount(), 1L, "delivery count");
        return code;
    }

    private static String settle() {
        String queue = queue();
        Bus.send(queue, in("s", "c"), in("s", "a"), in("s", "l"), in("s", "d"));
        ServiceBusReceiverClient receiver = accept(queue, "s");
        List<ServiceBusReceivedMessage> found = Bus.receive(receiver, 4);
        receiver.complete(found.get(0));
        receiver.deadLetter(found.get(2));
        receiver.defer(found.get(3));
        receiver.abandon(found.get(1));
        ServiceBusReceivedMessage again = Bus.receive(receiver, 1).get(0);
        Check.same(again.getBody() + " " + again.getDeliveryCount(), "a 1", "abandoned");
        receiver.complete(receiver.receiveDeferredMessage(found.get(3).getSequenceNumber()));
        ServiceBusReceivedMessage dead = Bus.receive(Bus.deadLetters(queue), 1).get(0);
        Check.same(dead.getBody() + " " + dead.getSessionId(), "l s", "dead-lettered");
        return "in all four ways";
    }

    private static String peek() {
        String queue = queue();
        Bus.send(queue, in("a", "1"), in("b", "2"));
        Check.same(Bus.bodies(accept(queue, "b").peekMessages(5)), List.of("2"), "bodies");
        return "only its own";
    }

    private static String receiveAndDelete() {
        String queue = queue();
        Bus.send(queue, in("a", "1"));
        ServiceBusReceiverClient receiver = Bus.CLIENT.sessionReceiver().queueName(queue)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient().acceptSession("a");
        Bus.receive(receiver, 1);
        Bus.nothing(receiver);
        return "gone";
    }

    private static String stream() throws Exception {
        String queue = shortQueue();
        Bus.send(queue, in("s", "s1"), in("t", "t1"), in("s", "s2"), in("t", "t2"));
        List<String> found = Collections.synchronizedList(new ArrayList<>());
        List<String> errors = Collections.synchronizedList(new ArrayList<>());
        ServiceBusProcessorClient processor = Bus.CLIENT.sessionProcessor().queueName(queue).maxConcurrentSessions(2)
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> errors.add(context.getException().getMessage()))
                .buildProcessorClient();
        processor.start();
        Check.until(() -> found.size() == 4, "all processed", 30_000);
        processor.close();
        Check.same(found.stream().filter(each -> each.startsWith("s")).toList(), List.of("s1", "s2"), "session s");
        Check.same(found.stream().filter(each -> each.startsWith("t")).toList(), List.of("t1", "t2"), "session t");
        Check.same(errors, List.of(), "errors");
        return "two sessions at once, each in order";
    }

    private static String needed() {
        String queue = queue();
        String code = Check.refused(() -> Bus.send(queue, Bus.text("1")), "GENERAL_ERROR");
        Check.refused(() -> Bus.CLIENT.receiver().queueName(queue).buildAsyncClient()
                .receiveMessages().blockFirst(Duration.ofSeconds(30)), "GENERAL_ERROR", "amqp:not-allowed",
                "UnsupportedOperationException");
        String plain = Bus.queue();
        Check.refused(() -> accept(plain, "s"), "GENERAL_ERROR", "amqp:not-allowed", "UnsupportedOperationException");
        return code + ", three times";
    }

    private static String ofSubscription() {
        String topic = Bus.topic();
        Bus.ADMIN.createSubscription(topic, "s", new CreateSubscriptionOptions().setSessionRequired(true));
        Bus.publish(topic, in("x", "1"));
        ServiceBusReceiverClient receiver = Bus.CLIENT.sessionReceiver().topicName(topic).subscriptionName("s")
                .disableAutoComplete().buildClient().acceptNextSession();
        Check.same(receiver.getSessionId() + Bus.bodies(Bus.receive(receiver, 1)), "x[1]", "session and body");
        return "session of a subscription";
    }
}
