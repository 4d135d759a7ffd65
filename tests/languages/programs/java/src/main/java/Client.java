import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;

/** The official Java client, as the README of the folder above says. */
final class Client {
    private static final int BATCH = 5;
    private static final long AFTER_FAILURE_MS = 500;
    private static final long DUE_MS = 1_000;
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Builders share a connection. */
    private final ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(System.getenv("BUS"));
    private final Map<String, ServiceBusSenderClient> senders = new HashMap<>();
    private final Map<String, ServiceBusReceiverClient> receivers = new HashMap<>();
    private final Map<String, Kept> kept = new HashMap<>();
    private final Map<String, ServiceBusTransactionContext> transactions = new HashMap<>();
    private final List<IdFile> files = new ArrayList<>();
    private final List<Thread> loops = new ArrayList<>();
    private final List<ServiceBusProcessorClient> processors = new ArrayList<>();
    private volatile boolean stopping;

    private record Kept(ServiceBusReceiverClient receiver, ServiceBusReceivedMessage message) {}

    /** A line for each id, on disk before anything else happens. */
    private static final class IdFile {
        final AtomicInteger accepted = new AtomicInteger();
        final AtomicInteger failed = new AtomicInteger();
        final AtomicInteger received = new AtomicInteger();
        private final FileOutputStream file;

        IdFile(String path) throws IOException {
            file = new FileOutputStream(path, true);
        }

        synchronized void add(AtomicInteger count, List<String> lines) {
            try {
                for (String line : lines) {
                    file.write((line.replace('\n', ' ') + "\n").getBytes(StandardCharsets.UTF_8));
                }
                file.getFD().sync();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
            if (count != null) {
                count.addAndGet(lines.size());
            }
        }
    }

    private ServiceBusSenderClient sender(String entity) {
        return senders.computeIfAbsent(entity, name -> builder.sender().queueName(name).buildClient());
    }

    private ServiceBusReceiverClient receiver(String entity) {
        return receivers.computeIfAbsent(
                entity, name -> builder.receiver().queueName(name).disableAutoComplete().buildClient());
    }

    private void send(String entity, String how, List<String> ids) {
        ServiceBusSenderClient sender = sender(entity);
        List<ServiceBusMessage> messages =
                ids.stream().map(id -> new ServiceBusMessage(id).setMessageId(id)).toList();
        switch (how) {
            case "schedule" -> {
                // Nothing is sent before somebody reads the sequence numbers.
                var due = OffsetDateTime.now().plus(Duration.ofMillis(DUE_MS));
                sender.scheduleMessages(messages, due).forEach(number -> {});
            }
            case "batch" -> {
                var batch = sender.createMessageBatch();
                messages.forEach(batch::tryAddMessage);
                sender.sendMessages(batch);
            }
            default -> sender.sendMessage(messages.get(0));
        }
    }

    private void sendIn(ServiceBusTransactionContext transaction, String entity, String how, List<String> ids) {
        ServiceBusSenderClient sender = sender(entity);
        List<ServiceBusMessage> messages =
                ids.stream().map(id -> new ServiceBusMessage(id).setMessageId(id)).toList();
        switch (how) {
            case "schedule" -> {
                var due = OffsetDateTime.now().plus(Duration.ofMillis(DUE_MS));
                sender.scheduleMessages(messages, due, transaction).forEach(number -> {});
            }
            case "batch" -> {
                var batch = sender.createMessageBatch();
                messages.forEach(batch::tryAddMessage);
                sender.sendMessages(batch, transaction);
            }
            default -> sender.sendMessage(messages.get(0), transaction);
        }
    }

    private static void settleIn(ServiceBusTransactionContext transaction, Kept one, String how) {
        switch (how) {
            case "complete" ->
                one.receiver().complete(one.message(), new CompleteOptions().setTransactionContext(transaction));
            case "abandon" ->
                one.receiver().abandon(one.message(), new AbandonOptions().setTransactionContext(transaction));
            case "defer" ->
                one.receiver().defer(one.message(), new DeferOptions().setTransactionContext(transaction));
            default ->
                one.receiver().deadLetter(one.message(), new DeadLetterOptions().setTransactionContext(transaction));
        }
    }

    private void keepSending(JsonNode command, IdFile file) {
        String prefix = command.get("prefix").asText();
        List<String> ways = List.of("single", "batch", "schedule");
        int number = 0;
        for (int turn = 0; !stopping; turn++) {
            String how = ways.get(turn % ways.size());
            int first = number;
            number += how.equals("single") ? 1 : BATCH;
            List<String> ids = IntStream.range(first, number).mapToObj(each -> prefix + "-" + each).toList();
            try {
                send(command.get("entity").asText(), how, ids);
                file.add(file.accepted, ids.stream().map(id -> "accepted " + id).toList());
            } catch (RuntimeException error) {
                String why = " " + kindOf(error) + " " + error.getMessage();
                file.add(file.failed, ids.stream().map(id -> "failed " + id + why).toList());
                pause(AFTER_FAILURE_MS);
            }
            pause(command.get("pause_ms").asLong());
        }
    }

    private void keepReceiving(JsonNode command, IdFile file) {
        ServiceBusProcessorClient processor = builder.processor()
                .queueName(command.get("entity").asText())
                .processMessage(context -> {
                    ServiceBusReceivedMessage message = context.getMessage();
                    file.add(file.received, List.of("received " + message.getMessageId() + " "
                            + message.getSequenceNumber() + " " + message.getDeliveryCount()));
                }) // it is completed when this returns
                .processError(context -> file.add(null, List.of("problem " + kindOf(context.getException()) + " "
                        + context.getException().getMessage())))
                .buildProcessorClient();
        processor.start();
        processors.add(processor);
    }

    private Map<String, Object> run(JsonNode command) throws IOException, InterruptedException {
        switch (command.get("do").asText()) {
            case "send" -> {
                List<String> ids = new ArrayList<>();
                command.get("ids").forEach(id -> ids.add(id.asText()));
                if (command.has("transaction")) {
                    var transaction = transactions.get(command.get("transaction").asText());
                    sendIn(transaction, command.get("entity").asText(), command.get("how").asText(), ids);
                    return Map.of();
                }
                send(command.get("entity").asText(), command.get("how").asText(), ids);
                return Map.of();
            }
            case "receive" -> {
                ServiceBusReceiverClient receiver = receiver(command.get("entity").asText());
                var found = receiver.receiveMessages(
                        command.get("max").asInt(), Duration.ofMillis(command.get("wait_ms").asLong())).stream().toList();
                found.forEach(message -> kept.put(message.getMessageId(), new Kept(receiver, message)));
                return Map.of("messages", found.stream().map(Client::described).toList());
            }
            case "settle" -> {
                Kept one = kept.get(command.get("message").asText());
                if (command.has("transaction")) {
                    var transaction = transactions.get(command.get("transaction").asText());
                    settleIn(transaction, one, command.get("how").asText());
                } else if (command.get("how").asText().equals("complete")) {
                    one.receiver().complete(one.message());
                } else {
                    one.receiver().abandon(one.message());
                }
                return Map.of();
            }
            case "cross-entity" -> {
                builder.enableCrossEntityTransactions();
                return Map.of();
            }
            case "begin" -> {
                var transaction = sender(command.get("entity").asText()).createTransaction();
                transactions.put(command.get("transaction").asText(), transaction);
                return Map.of();
            }
            case "commit" -> {
                var transaction = transactions.get(command.get("transaction").asText());
                sender(command.get("entity").asText()).commitTransaction(transaction);
                return Map.of();
            }
            case "rollback" -> {
                var transaction = transactions.get(command.get("transaction").asText());
                sender(command.get("entity").asText()).rollbackTransaction(transaction);
                return Map.of();
            }
            case "renew" -> {
                Kept one = kept.get(command.get("message").asText());
                one.receiver().renewMessageLock(one.message());
                return Map.of();
            }
            case "peek" -> {
                var found = receiver(command.get("entity").asText())
                        .peekMessages(command.get("max").asInt()).stream().map(Client::described).toList();
                return Map.of("messages", found);
            }
            case "start-sending" -> {
                IdFile file = opened(command);
                Thread loop = new Thread(() -> keepSending(command, file));
                loops.add(loop);
                loop.start();
                return Map.of();
            }
            case "start-receiving" -> {
                keepReceiving(command, opened(command));
                return Map.of();
            }
            case "stop" -> {
                stopping = true;
                for (Thread loop : loops) {
                    loop.join();
                }
                processors.forEach(ServiceBusProcessorClient::close);
                return Map.of(
                        "accepted", files.stream().mapToInt(file -> file.accepted.get()).sum(),
                        "failed", files.stream().mapToInt(file -> file.failed.get()).sum(),
                        "received", files.stream().mapToInt(file -> file.received.get()).sum());
            }
            default -> throw new IllegalArgumentException("unknown command");
        }
    }

    private IdFile opened(JsonNode command) throws IOException {
        IdFile file = new IdFile(command.get("file").asText());
        files.add(file);
        return file;
    }

    private static Map<String, Object> described(ServiceBusReceivedMessage message) {
        return Map.of(
                "id", message.getMessageId(),
                "sequence", message.getSequenceNumber(),
                "delivery_count", message.getDeliveryCount());
    }

    private static String kindOf(Throwable error) {
        String name = error.getClass().getSimpleName();
        return error instanceof ServiceBusException busError ? name + "(" + busError.getReason() + ")" : name;
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws IOException {
        Client client = new Client();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            long began = System.nanoTime();
            Map<String, Object> values = new LinkedHashMap<>();
            values.put("id", command.get("id").asInt());
            try {
                values.putAll(client.run(command));
            } catch (Exception error) {
                values.put("error", kindOf(error));
                values.put("text", String.valueOf(error.getMessage()));
            }
            values.put("ms", (System.nanoTime() - began) / 1_000_000);
            out.println(JSON.writeValueAsString(values));
        }
        System.exit(0);
    }
}
