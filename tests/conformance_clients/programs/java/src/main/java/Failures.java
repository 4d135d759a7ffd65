import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** WebSocket, and what is refused: wrong key, missing right, full, disabled, busy. */
final class Failures {
    static final List<Check> CHECKS = List.of(
            new Check("websocket", Failures::webSocket),
            new Check("custom-endpoint", Failures::customEndpoint),
            new Check("wrong-key", Failures::wrongKey),
            new Check("missing-right", Failures::missingRight),
            new Check("no-such-entity", Failures::noSuchEntity),
            new Check("full", Failures::full),
            new Check("disabled", Failures::disabled),
            new Check("busy", Failures::busy),
            new Check("busy-once", Failures::busyOnce),
            new Check("connection-lost", Failures::connectionLost));

    private static void send(ServiceBusClientBuilder client, String queue) {
        try (var sender = client.sender().queueName(queue).buildClient()) {
            sender.sendMessage(Bus.text("1"));
        }
    }

    /** With the client for streams: that for threads hides why its link was refused. */
    private static ServiceBusReceivedMessage receive(ServiceBusClientBuilder client, String queue) {
        try (var receiver = client.receiver().queueName(queue).disableAutoComplete().buildAsyncClient()) {
            return receiver.receiveMessages().blockFirst(Duration.ofSeconds(30));
        }
    }

    /** TLS, to the port of the namespace: only a custom endpoint has one. */
    private static ServiceBusClientBuilder atEndpoint() {
        String string = Bus.STRING.replace("UseDevelopmentEmulator=true", "").replaceFirst("sb://[^;/]+", "sb://localhost");
        return Bus.client(string, 1).customEndpointAddress("https://localhost:" + Bus.PORT);
    }

    private static String webSocket() {
        String queue = Bus.queue();
        ServiceBusClientBuilder client = atEndpoint().transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
        send(client, queue);
        client.sender().queueName(queue).buildClient().sendMessage(new ServiceBusMessage(new byte[200 * 1024]));
        var receiver = client.receiver().queueName(queue).disableAutoComplete().buildClient();
        List<ServiceBusReceivedMessage> found = Bus.receive(receiver, 2);
        Check.same(found.get(1).getBody().toBytes().length, 200 * 1024, "length");
        found.forEach(receiver::complete);
        return "sent, received and completed, 200 KiB too";
    }

    private static String customEndpoint() {
        String queue = Bus.queue();
        send(atEndpoint(), queue);
        Bus.receive(Bus.receiver(queue), 1);
        return "over TLS";
    }

    private static String wrongKey() {
        String queue = Bus.queue();
        String wrong = Bus.STRING.replaceFirst("SharedAccessKey=[^;]+", "SharedAccessKey=d3Jvbmc=");
        String code = Check.refused(() -> send(Bus.client(wrong, 0), queue), "UNAUTHORIZED");
        return code + ", " + Check.refused(() -> Bus.administration(wrong).getQueue(queue), "401");
    }

    private static String missingRight() {
        String queue = Bus.queue();
        ServiceBusClientBuilder sender = Bus.client(System.getenv("BUS_SENDER"), 0);
        ServiceBusClientBuilder listener = Bus.client(System.getenv("BUS_LISTENER"), 0);
        send(sender, queue);
        String code = Check.refused(() -> receive(sender, queue), "UNAUTHORIZED");
        Check.must(receive(listener, queue) != null, "nothing came");
        Check.refused(() -> send(listener, queue), "UNAUTHORIZED");
        var administration = Bus.administration(System.getenv("BUS_LISTENER"));
        return code + ", twice, and " + Check.refused(() -> administration.createQueue("none"), "401", "403");
    }

    private static String noSuchEntity() {
        String code = Check.refused(() -> send(Bus.CLIENT, "missing"), "MESSAGING_ENTITY_NOT_FOUND");
        Check.refused(() -> receive(Bus.CLIENT, "missing"), "MESSAGING_ENTITY_NOT_FOUND");
        return code + ", twice";
    }

    private static String full() throws Exception {
        String queue = Bus.queue(new CreateQueueOptions().setMaxSizeInMegabytes(1));
        var sender = Bus.sender(queue);
        byte[] body = new byte[200 * 1024];
        String code = Check.refused(() -> {
            for (int count = 0; count < 12; count++) {
                sender.sendMessage(new ServiceBusMessage(body));
            }
        }, "QUOTA_EXCEEDED");
        if (Bus.IS_PROXIED) {
            Check.until(() -> isSent(() -> sender.sendMessage(new ServiceBusMessage(body))), "sends go on", 60_000);
            return code + ", until the proxy took it for an outage: sends go on";
        }
        Bus.receive(Bus.deleting(queue), 3);
        sender.sendMessage(Bus.text("1"));
        return code + "; taken again when there was room";
    }

    private static boolean isSent(Runnable send) {
        try {
            send.run();
            return true;
        } catch (RuntimeException error) {
            return false;
        }
    }

    private static String disabled() {
        String queue = Bus.queue();
        Bus.ADMIN.updateQueue(Bus.ADMIN.getQueue(queue).setStatus(EntityStatus.DISABLED));
        ServiceBusClientBuilder client = Bus.client(Bus.STRING, 0);
        if (!Bus.IS_PROXIED) {
            Check.refused(() -> send(client, queue), "MESSAGING_ENTITY_DISABLED");
        }
        String code = Check.refused(() -> receive(client, queue), "MESSAGING_ENTITY_DISABLED");
        Bus.ADMIN.updateQueue(Bus.ADMIN.getQueue(queue).setStatus(EntityStatus.RECEIVE_DISABLED));
        Bus.send(queue, Bus.text("2"));
        Bus.ADMIN.updateQueue(Bus.ADMIN.getQueue(queue).setStatus(EntityStatus.ACTIVE));
        Bus.receive(Bus.receiver(queue), 1);
        return code;
    }

    private static String busy() {
        return Check.refused(() -> send(Bus.client(Bus.STRING, 1, Duration.ofSeconds(60)), "busy"),
                "SERVICE_BUSY", "com.microsoft:server-busy");
    }

    private static String busyOnce() {
        send(Bus.client(Bus.STRING, 2), "busy-once");
        Bus.receive(Bus.receiver("busy-once"), 1);
        return "sent again by itself after a refusal";
    }

    private static String connectionLost() throws Exception {
        ServiceBusClientBuilder client = Bus.client(Bus.STRING, 5);
        List<String> found = Collections.synchronizedList(new ArrayList<>());
        ServiceBusProcessorClient processor = client.processor().queueName("dropped")
                .processMessage(context -> found.add(context.getMessage().getBody().toString()))
                .processError(context -> { })
                .buildProcessorClient();
        processor.start();
        var sender = client.sender().queueName("dropped").buildClient();
        sender.sendMessage(Bus.text("first"));
        Check.until(() -> found.contains("first"), "the first message", 20_000);
        Check.write(Map.of("do", "drop"));
        Thread.sleep(2_000);
        sender.sendMessage(Bus.text("second"));
        Check.until(() -> found.contains("second"), "the second message", 60_000);
        processor.close();
        return "sender and receiver went on after their connection was reset";
    }
}
