// Sending to queues, and receiving from them.
import { ServiceBusClient } from "@azure/service-bus";
import { admin, bodies, check, client, must, newQueue, nothing, receive, refused, same, send, sleep, until } from "./harness.js";

const SHORT = { lockDuration: "PT5S" };

check("send-single", async () => {
  const queue = await newQueue();
  const sender = client.createSender(queue);
  await sender.sendMessages({ body: "one" });
  const [message] = await receive(client.createReceiver(queue), 1);
  same(message.body, "one", "body");
  return `sequence number ${message.sequenceNumber}`;
});

check("send-list", async () => {
  const queue = await newQueue();
  await send(queue, ...[1, 2, 3].map((body) => ({ body })));
  const found = await receive(client.createReceiver(queue), 3);
  same(bodies(found), [1, 2, 3], "bodies");
  return "3 messages, in order";
});

check("send-batch", async () => {
  const queue = await newQueue();
  const sender = client.createSender(queue);
  const batch = await sender.createMessageBatch();
  while (batch.tryAddMessage({ body: "x".repeat(30_000) }));
  must(batch.count >= 7, `a batch took ${batch.count} messages only`);
  await sender.sendMessages(batch);
  await receive(client.createReceiver(queue, { receiveMode: "receiveAndDelete" }), batch.count);
  return `${batch.count} messages, ${batch.sizeInBytes} of at most ${batch.maxSizeInBytes} bytes`;
});

check("send-large", async () => {
  const queue = await newQueue();
  const body = Buffer.alloc(255 * 1024, 7);
  await send(queue, { body });
  const [message] = await receive(client.createReceiver(queue), 1);
  must(body.equals(message.body), "the body came back changed");
  return `${body.length} bytes`;
});

check("send-too-large", async () => {
  const queue = await newQueue();
  const sender = client.createSender(queue);
  return refused(["MessageSizeExceeded", "MessageTooLargeError"], () => sender.sendMessages({ body: Buffer.alloc(300 * 1024) }));
});

check("schedule", async () => {
  const queue = await newQueue();
  const sender = client.createSender(queue);
  const due = new Date(Date.now() + 4_000);
  const [number] = await sender.scheduleMessages({ body: "later" }, due);
  const receiver = client.createReceiver(queue);
  const [seen] = await receiver.peekMessages(1);
  same(seen.state, "scheduled", "state");
  await nothing(receiver, 1_000);
  const [message] = await receive(receiver, 1);
  const late = Date.now() - due.getTime();
  must(late >= -500, `it came ${-late} ms early`);
  same(message.body, "later", "body");
  return `number ${number}, came ${late} ms after its time`;
});

check("schedule-by-property", async () => {
  const queue = await newQueue();
  await send(queue, { body: "later", scheduledEnqueueTimeUtc: new Date(Date.now() + 3_000) });
  const receiver = client.createReceiver(queue);
  await nothing(receiver, 1_000);
  await receive(receiver, 1);
  return "came when it was due";
});

check("cancel-scheduled", async () => {
  const queue = await newQueue();
  const sender = client.createSender(queue);
  const numbers = await sender.scheduleMessages([{ body: 1 }, { body: 2 }], new Date(Date.now() + 4_000));
  await sender.cancelScheduledMessages(numbers[0]);
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  same(message.body, 2, "body");
  await nothing(receiver);
  return `cancelled ${numbers[0]} of ${numbers.length}`;
});

check("properties", async () => {
  const queue = await newQueue();
  const given = {
    body: { nested: [1, "two"] }, messageId: "id-1", contentType: "application/json", correlationId: "c-1", partitionKey: "p",
    subject: "s", to: "t", replyTo: "r", replyToSessionId: "rs", timeToLive: 600_000,
    applicationProperties: { text: "ä", whole: 7, fraction: 1.5, truth: true, none: null, when: new Date(1_700_000_000_000) },
  };
  await send(queue, given);
  const [message] = await receive(client.createReceiver(queue), 1);
  given.applicationProperties.when = 1_700_000_000_000; // the client makes numbers of dates, unless it is told not to
  for (const [name, value] of Object.entries(given)) same(message[name], value, name);
  must(message.enqueuedTimeUtc && message.expiresAtUtc && message.lockedUntilUtc && message.lockToken, "times and lock");
  same(message.deliveryCount, 0, "delivery count");
  return `${Object.keys(given).length} properties came back as they were`;
});

check("annotated-message", async () => {
  const queue = await newQueue();
  for (const bodyType of ["value", "sequence", "data"]) {
    const body = { value: { a: 1 }, sequence: [[1, 2], [3]], data: Buffer.from("raw") }[bodyType];
    await send(queue, { body, bodyType, properties: { messageId: bodyType } });
  }
  const found = await receive(client.createReceiver(queue), 3);
  same(found.map((one) => one._rawAmqpMessage.bodyType), ["value", "sequence", "data"], "kinds of bodies");
  same([found[0].body, found[1].body], [{ a: 1 }, [[1, 2], [3]]], "bodies");
  return "value, sequence and data";
});

check("duplicates", async () => {
  const queue = await newQueue({ requiresDuplicateDetection: true });
  await send(queue, { body: 1, messageId: "same" });
  await send(queue, { body: 2, messageId: "same" }, { body: 3, messageId: "other" });
  const found = await receive(client.createReceiver(queue), 2);
  same(bodies(found), [1, 3], "bodies");
  return "the second with the same id was dropped";
});

check("complete", async () => {
  const queue = await newQueue(SHORT);
  await send(queue, { body: 1 });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.completeMessage(message);
  await nothing(receiver, 7_000);
  return "gone for good";
});

check("abandon", async () => {
  const queue = await newQueue();
  await send(queue, { body: 1, applicationProperties: { kept: "k" } });
  const receiver = client.createReceiver(queue);
  const [first] = await receive(receiver, 1);
  await receiver.abandonMessage(first, { added: "a" });
  const [again] = await receive(receiver, 1);
  same(again.deliveryCount, 1, "delivery count");
  same(again.applicationProperties, { kept: "k", added: "a" }, "application properties");
  await receiver.completeMessage(again);
  return "came again, delivery count 1, with the added property";
});

check("dead-letter", async () => {
  const queue = await newQueue();
  await send(queue, { body: 1 });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deadLetterMessage(message, { deadLetterReason: "why", deadLetterErrorDescription: "long", more: "m" });
  const [dead] = await receive(client.createReceiver(queue, { subQueueType: "deadLetter" }), 1);
  same([dead.deadLetterReason, dead.deadLetterErrorDescription], ["why", "long"], "reason and description");
  same(dead.applicationProperties.more, "m", "added property");
  return "with reason, description and an added property";
});

check("defer", async () => {
  const queue = await newQueue();
  await send(queue, { body: 1 });
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deferMessage(message, { added: "a" });
  await nothing(receiver);
  const [peeked] = await receiver.peekMessages(1);
  same(peeked.state, "deferred", "state");
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  same(deferred.applicationProperties?.added, "a", "added property");
  await receiver.completeMessage(deferred);
  same((await receiver.peekMessages(1)).length, 0, "messages left");
  return `by sequence number ${message.sequenceNumber}`;
});

check("receive-and-delete", async () => {
  const queue = await newQueue(SHORT);
  await send(queue, { body: 1 }, { body: 2 });
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  const found = await receive(receiver, 2);
  must(!found[0].lockToken, "there is a lock token");
  same((await receiver.peekMessages(2)).length, 0, "messages left");
  return "2 messages, none left";
});

check("renew-lock", async () => {
  const queue = await newQueue(SHORT);
  await send(queue, { body: 1 });
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  const first = message.lockedUntilUtc;
  await sleep(3_000);
  const renewed = await receiver.renewMessageLock(message);
  must(renewed > first, "the lock does not end later");
  await sleep(3_500);
  await receiver.completeMessage(message);
  return `${renewed - first} ms longer, completed after the first lock's end`;
});

check("renew-lock-by-itself", async () => {
  const queue = await newQueue(SHORT);
  await send(queue, { body: 1 });
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 60_000 });
  const [message] = await receive(receiver, 1);
  await sleep(8_000);
  await receiver.completeMessage(message);
  return "completed 8 s after it was locked for 5 s";
});

check("lock-lost", async () => {
  const queue = await newQueue(SHORT);
  await send(queue, { body: 1 });
  const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  await sleep(6_000);
  const code = await refused("MessageLockLost", () => receiver.completeMessage(message));
  const [again] = await receive(receiver, 1);
  same(again.deliveryCount, 1, "delivery count");
  return code;
});

check("settle-by-another-receiver", async () => {
  const queue = await newQueue();
  await send(queue, { body: 1 });
  const first = client.createReceiver(queue);
  const [message] = await receive(first, 1);
  await first.close();
  const other = client.createReceiver(queue);
  await other.completeMessage(message);
  same((await other.peekMessages(1)).length, 0, "messages left");
  return "completed by its lock token after its receiver was closed";
});

check("delivery-limit", async () => {
  const queue = await newQueue({ maxDeliveryCount: 2 });
  await send(queue, { body: 1 });
  const receiver = client.createReceiver(queue);
  for (const _ of [1, 2]) await receiver.abandonMessage((await receive(receiver, 1))[0]);
  const [dead] = await receive(client.createReceiver(queue, { subQueueType: "deadLetter" }), 1);
  same(dead.deadLetterReason, "MaxDeliveryCountExceeded", "reason");
  return dead.deadLetterReason;
});

check("expiry", async () => {
  const queue = await newQueue({ deadLetteringOnMessageExpiration: true });
  await send(queue, { body: 1, timeToLive: 1_000 });
  await sleep(1_500);
  await nothing(client.createReceiver(queue));
  const [dead] = await receive(client.createReceiver(queue, { subQueueType: "deadLetter" }), 1);
  same(dead.deadLetterReason, "TTLExpiredException", "reason");
  return dead.deadLetterReason;
});

check("peek", async () => {
  const queue = await newQueue();
  await send(queue, ...[1, 2, 3, 4].map((body) => ({ body })));
  const receiver = client.createReceiver(queue);
  const [first, second] = await receiver.peekMessages(2);
  const [third] = await receiver.peekMessages(1);
  same(bodies([first, second, third]), [1, 2, 3], "bodies");
  const again = await receiver.peekMessages(10, { fromSequenceNumber: second.sequenceNumber });
  same(bodies(again), [2, 3, 4], "from a sequence number");
  must(!first.lockToken, "a peeked message has a lock");
  await receive(receiver, 4);
  return "peeked on and from a number, all still there";
});

check("stream", async () => {
  const queue = await newQueue(SHORT);
  const receiver = client.createReceiver(queue);
  const found = [];
  const errors = [];
  const subscription = receiver.subscribe(
    {
      processMessage: async (message) => {
        if (message.body === "fails" && message.deliveryCount === 0) throw new Error("on purpose");
        if (message.body === "slow") await sleep(7_000);
        found.push(`${message.body}${message.deliveryCount}`);
      },
      processError: async ({ errorSource }) => void errors.push(errorSource),
    },
    { maxConcurrentCalls: 2 },
  );
  await send(queue, { body: "slow" }, { body: "fails" }, { body: "quick" });
  await until(() => found.length === 3, "all processed");
  await subscription.close();
  same([...found].sort(), ["fails1", "quick0", "slow0"], "processed");
  same(errors, ["processMessageCallback"], "errors");
  await until(async () => (await admin.getQueueRuntimeProperties(queue)).totalMessageCount === 0, "all completed");
  return "completed by itself, renewed by itself, abandoned after an error";
});

check("iterate", async () => {
  const queue = await newQueue();
  await send(queue, ...[1, 2, 3].map((body) => ({ body })));
  const receiver = client.createReceiver(queue);
  const found = [];
  for await (const message of receiver.getMessageIterator()) {
    found.push(message.body);
    await receiver.completeMessage(message);
    if (found.length === 3) break;
  }
  same(found, [1, 2, 3], "bodies");
  return "3 messages, in order";
});

check("forward", async () => {
  const target = await newQueue();
  const queue = await newQueue({ forwardTo: target });
  await send(queue, { body: 1 });
  const [message] = await receive(client.createReceiver(target), 1);
  return `came to the target with number ${message.sequenceNumber}`;
});

check("custom-endpoint", async () => {
  const queue = await newQueue();
  const [, host] = /Endpoint=sb:\/\/([^/;]+)/.exec(process.env.BUS);
  const string = process.env.BUS.replace(host, "contoso.servicebus.windows.net").replace("UseDevelopmentEmulator=true", "");
  const other = new ServiceBusClient(string, { customEndpointAddress: `sb://${host}` });
  await other.createSender(queue).sendMessages({ body: 1 });
  await other.close();
  await receive(client.createReceiver(queue), 1);
  return "over TLS, with the name of another host";
});
