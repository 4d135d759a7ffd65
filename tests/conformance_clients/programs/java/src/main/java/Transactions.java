import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;

/** Transactions: of this client alone. */
final class Transactions {
    static final List<Check> CHECKS = List.of(
            new Check("transaction-commit", Transactions::commit),
            new Check("transaction-rollback", Transactions::rollback),
            new Check("transaction-settle", Transactions::settle),
            new Check("transaction-schedule", Transactions::schedule),
            new Check("transaction-across-entities", Transactions::acrossEntities));

    private static String commit() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("first"));
        var sender = Bus.sender(queue);
        var receiver = Bus.receiver(queue);
        ServiceBusReceivedMessage message = Bus.receive(receiver, 1).get(0);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        sender.sendMessage(Bus.text("second"), transaction);
        sender.sendMessages(List.of(Bus.text("third")), transaction);
        receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
        Bus.nothing(receiver);
        sender.commitTransaction(transaction);
        // The client gives back what comes while nobody receives: then the second comes after the third.
        Check.same(Bus.bodies(Bus.receive(receiver, 2)).stream().sorted().toList(), List.of("second", "third"), "bodies");
        return "two sends and a completion, at once";
    }

    private static String rollback() {
        String queue = Bus.queue(Bus.shortLocks());
        Bus.send(queue, Bus.text("first"));
        var sender = Bus.sender(queue);
        var receiver = Bus.receiver(queue);
        ServiceBusReceivedMessage message = Bus.receive(receiver, 1).get(0);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        sender.sendMessage(Bus.text("second"), transaction);
        receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
        receiver.rollbackTransaction(transaction);
        Check.same(Bus.bodies(Bus.receive(receiver, 1)), List.of("first"), "bodies");
        Bus.nothing(receiver);
        return "nothing was sent, and the message came again when its lock had ended";
    }

    private static String settle() {
        String queue = Bus.queue();
        Bus.send(queue, Bus.text("a"), Bus.text("l"), Bus.text("d"));
        var receiver = Bus.receiver(queue);
        List<ServiceBusReceivedMessage> found = Bus.receive(receiver, 3);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        receiver.deadLetter(found.get(1),
                new DeadLetterOptions().setDeadLetterReason("why").setTransactionContext(transaction));
        receiver.defer(found.get(2), new DeferOptions().setTransactionContext(transaction));
        receiver.abandon(found.get(0), new AbandonOptions().setTransactionContext(transaction));
        receiver.commitTransaction(transaction);
        Check.same(Bus.bodies(Bus.receive(receiver, 1)), List.of("a"), "abandoned");
        Check.same(Bus.receive(Bus.deadLetters(queue), 1).get(0).getDeadLetterReason(), "why", "reason");
        ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(found.get(2).getSequenceNumber());
        Check.same(deferred.getBody().toString(), "d", "deferred");
        return "abandoned, dead-lettered and deferred";
    }

    private static String schedule() {
        String queue = Bus.queue();
        var sender = Bus.sender(queue);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        sender.scheduleMessage(new ServiceBusMessage("later"), OffsetDateTime.now().plusSeconds(2), transaction);
        sender.commitTransaction(transaction);
        Check.same(Bus.bodies(Bus.receive(Bus.receiver(queue), 1)), List.of("later"), "bodies");
        return "came when it was due";
    }

    private static String acrossEntities() {
        String source = Bus.queue();
        String target = Bus.queue();
        Bus.send(source, Bus.text("1"));
        var builder = Bus.client(Bus.STRING, 1).enableCrossEntityTransactions();
        var receiver = builder.receiver().queueName(source).disableAutoComplete()
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient();
        var sender = builder.sender().queueName(target).buildClient();
        ServiceBusReceivedMessage message = Bus.receive(receiver, 1).get(0);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        sender.sendMessage(Bus.text("2"), transaction);
        receiver.complete(message, new CompleteOptions().setTransactionContext(transaction));
        receiver.commitTransaction(transaction);
        Check.same(Bus.bodies(Bus.receive(Bus.receiver(target), 1)), List.of("2"), "in the target");
        Check.same(Bus.receiver(source).peekMessage(), null, "left in the source");
        return "completed in one queue, sent to another";
    }
}
