import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.io.FileInputStream;
import java.io.OutputStream;
import java.net.MalformedURLException;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import reactor.core.publisher.Mono;

/** The namespace: clients, and entities of their own for each check. */
final class Bus {
    static final String STRING = System.getenv("BUS");
    static final boolean IS_PROXIED = "1".equals(System.getenv("PROXIED"));
    static final Duration PATIENT = Duration.ofSeconds(20);
    static final int PORT = port();
    private static final AtomicInteger MADE = new AtomicInteger();
    private static final String PASSWORD = "changeit";

    static final ServiceBusClientBuilder CLIENT = client(STRING, 1);
    static final ServiceBusAdministrationClient ADMIN = administration(STRING);

    private Bus() {}

    private static int port() {
        Matcher found = Pattern.compile("Endpoint=sb://[^:;/]+:(\\d+)").matcher(STRING);
        Check.must(found.find(), "the string names a port");
        return Integer.parseInt(found.group(1));
    }

    /** The authority of the namespace's certificate, for clients that speak TLS. */
    static void trust(String authority) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (FileInputStream file = new FileInputStream(authority)) {
            store.setCertificateEntry("twinbus", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        Path path = Files.createTempFile("trusted", ".p12");
        path.toFile().deleteOnExit();
        try (OutputStream file = Files.newOutputStream(path)) {
            store.store(file, PASSWORD.toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", path.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", PASSWORD);
    }

    static ServiceBusClientBuilder client(String connectionString, int retries) {
        return client(connectionString, retries, PATIENT);
    }

    static ServiceBusClientBuilder client(String connectionString, int retries, Duration tryTimeout) {
        AmqpRetryOptions options = new AmqpRetryOptions()
                .setMaxRetries(retries).setDelay(Duration.ofMillis(200)).setTryTimeout(tryTimeout);
        return new ServiceBusClientBuilder().connectionString(connectionString).retryOptions(options);
    }

    /** The client goes to port 443 whatever the string says; a policy, which it lets its users add, knows better. */
    static ServiceBusAdministrationClient administration(String connectionString) {
        return new ServiceBusAdministrationClientBuilder()
                .connectionString(connectionString).addPolicy(new ToThePort()).buildClient();
    }

    private static final class ToThePort implements HttpPipelinePolicy {
        @Override
        public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
            URL url = context.getHttpRequest().getUrl();
            try {
                context.getHttpRequest().setUrl(new URL("https", url.getHost(), PORT, url.getFile()));
            } catch (MalformedURLException error) {
                return Mono.error(error);
            }
            return next.process();
        }
    }

    // --- entities ---

    static String queue() {
        return queue(new CreateQueueOptions());
    }

    static String queue(CreateQueueOptions options) {
        String name = "java-queue-" + MADE.incrementAndGet() + "-" + System.currentTimeMillis();
        ADMIN.createQueue(name, options);
        return name;
    }

    static CreateQueueOptions shortLocks() {
        return new CreateQueueOptions().setLockDuration(Duration.ofSeconds(5));
    }

    static String topic() {
        String name = "java-topic-" + MADE.incrementAndGet() + "-" + System.currentTimeMillis();
        ADMIN.createTopic(name);
        return name;
    }

    static void subscription(String topic, String name) {
        ADMIN.createSubscription(topic, name);
    }

    static void subscription(String topic, String name, CreateRuleOptions rule) {
        ADMIN.createSubscription(topic, name, "rule", new CreateSubscriptionOptions(), rule);
    }

    // --- messages ---

    static ServiceBusSenderClient sender(String queue) {
        return CLIENT.sender().queueName(queue).buildClient();
    }

    static ServiceBusSenderClient topicSender(String topic) {
        return CLIENT.sender().topicName(topic).buildClient();
    }

    static ServiceBusMessage text(String body) {
        return new ServiceBusMessage(body);
    }

    static void send(String queue, ServiceBusMessage... messages) {
        try (ServiceBusSenderClient sender = sender(queue)) {
            for (ServiceBusMessage message : messages) {
                sender.sendMessage(message);
            }
        }
    }

    static void publish(String topic, ServiceBusMessage... messages) {
        try (ServiceBusSenderClient sender = topicSender(topic)) {
            for (ServiceBusMessage message : messages) {
                sender.sendMessage(message);
            }
        }
    }

    static ServiceBusReceiverClient receiver(String queue) {
        return CLIENT.receiver().queueName(queue).disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO).buildClient();
    }

    static ServiceBusReceiverClient deleting(String queue) {
        return CLIENT.receiver().queueName(queue).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient();
    }

    static ServiceBusReceiverClient deadLetters(String queue) {
        return CLIENT.receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient();
    }

    static ServiceBusReceiverClient of(String topic, String subscription) {
        return CLIENT.receiver().topicName(topic).subscriptionName(subscription).disableAutoComplete().buildClient();
    }

    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> found = whatComes(receiver, count, PATIENT);
        Check.same(found.size(), count, "messages that came");
        return found;
    }

    static List<ServiceBusReceivedMessage> whatComes(ServiceBusReceiverClient receiver, int most, Duration wait) {
        List<ServiceBusReceivedMessage> found = new ArrayList<>();
        long end = System.nanoTime() + wait.toNanos();
        while (found.size() < most && System.nanoTime() < end) {
            Duration left = Duration.ofNanos(Math.max(end - System.nanoTime(), 1_000_000));
            receiver.receiveMessages(most - found.size(), left).forEach(found::add);
        }
        return found;
    }

    static void nothing(ServiceBusReceiverClient receiver) {
        Check.same(whatComes(receiver, 1, Duration.ofMillis(1_500)).size(), 0, "messages that came");
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> found = new ArrayList<>();
        messages.forEach(message -> found.add(message.getBody().toString()));
        return found;
    }
}
