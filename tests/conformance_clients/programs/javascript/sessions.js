// Sessions: locks, state, order, and what is refused.
import { ServiceBusClient } from "@azure/service-bus";
import { bodies, bus, check, client, must, newQueue, newTopic, nothing, receive, refused, same, send, sleep } from "./harness.js";

const SESSIONS = { requiresSession: true };
const SHORT = { requiresSession: true, lockDuration: "PT5S" };

check("session-accept", async () => {
  const queue = await newQueue(SESSIONS);
  await send(queue, ...["a1", "b1", "a2", "b2"].map((body) => ({ body, sessionId: body[0] })));
  const receiver = await client.acceptSession(queue, "b");
  const found = await receive(receiver, 2);
  same(bodies(found), ["b1", "b2"], "bodies");
  same([receiver.sessionId, found[0].sessionId], ["b", "b"], "session");
  must(receiver.sessionLockedUntilUtc > new Date(), "the lock has ended");
  for (const message of found) await receiver.completeMessage(message);
  await receiver.close();
  return "only its own messages, in order";
});

check("session-next", async () => {
  const queue = await newQueue(SESSIONS);
  await send(queue, { body: 1, sessionId: "a" }, { body: 2, sessionId: "b" });
  const receivers = [await client.acceptNextSession(queue), await client.acceptNextSession(queue)];
  same(receivers.map((receiver) => receiver.sessionId).sort(), ["a", "b"], "sessions");
  return "each got a session of its own";
});

check("session-none", async () => {
  const queue = await newQueue(SESSIONS);
  const impatient = new ServiceBusClient(bus, { retryOptions: { maxRetries: 0, timeoutInMs: 4_000 } });
  const code = await refused(["ServiceTimeout", "ServiceCommunicationProblem"], () => impatient.acceptNextSession(queue));
  await impatient.close();
  return code;
});

check("session-state", async () => {
  const queue = await newQueue(SESSIONS);
  const receiver = await client.acceptSession(queue, "s");
  same(await receiver.getSessionState(), null, "state of a new session");
  await receiver.setSessionState({ step: 3 });
  await receiver.close();
  const again = await client.acceptSession(queue, "s");
  same(await again.getSessionState(), { step: 3 }, "state");
  await again.setSessionState(null);
  return "kept when the session was closed and opened again";
});

check("session-locked", async () => {
  const queue = await newQueue(SESSIONS);
  await client.acceptSession(queue, "s");
  return refused("SessionCannotBeLocked", () => client.acceptSession(queue, "s"));
});

check("session-renew", async () => {
  const queue = await newQueue(SHORT);
  await send(queue, { body: 1, sessionId: "s" });
  const receiver = await client.acceptSession(queue, "s", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  const first = receiver.sessionLockedUntilUtc;
  await sleep(3_000);
  const renewed = await receiver.renewSessionLock();
  must(renewed > first, "the lock does not end later");
  await sleep(3_500);
  await receiver.completeMessage(message);
  return `${renewed - first} ms longer`;
});

check("session-lock-lost", async () => {
  const queue = await newQueue(SHORT);
  await send(queue, { body: 1, sessionId: "s" });
  const receiver = await client.acceptSession(queue, "s", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await receive(receiver, 1);
  await sleep(6_500);
  const code = await refused("SessionLockLost", () => receiver.completeMessage(message));
  const again = await client.acceptSession(queue, "s");
  const [found] = await receive(again, 1);
  same(found.deliveryCount, 1, "delivery count");
  return code;
});

check("session-settle", async () => {
  const queue = await newQueue(SESSIONS);
  await send(queue, ...["c", "a", "l", "d"].map((body) => ({ body, sessionId: "s" })));
  const receiver = await client.acceptSession(queue, "s");
  const [complete, abandon, letter, defer] = await receive(receiver, 4);
  await receiver.completeMessage(complete);
  await receiver.deadLetterMessage(letter);
  await receiver.deferMessage(defer);
  await receiver.abandonMessage(abandon);
  const [again] = await receive(receiver, 1);
  same([again.body, again.deliveryCount], ["a", 1], "abandoned");
  const [deferred] = await receiver.receiveDeferredMessages([defer.sequenceNumber]);
  await receiver.completeMessage(deferred);
  const [dead] = await receive(client.createReceiver(queue, { subQueueType: "deadLetter" }), 1);
  same([dead.body, dead.sessionId], ["l", "s"], "dead-lettered");
  return "in all four ways";
});

check("session-peek", async () => {
  const queue = await newQueue(SESSIONS);
  await send(queue, { body: 1, sessionId: "a" }, { body: 2, sessionId: "b" });
  const receiver = await client.acceptSession(queue, "b");
  same(bodies(await receiver.peekMessages(5)), [2], "bodies");
  return "only its own";
});

check("session-receive-and-delete", async () => {
  const queue = await newQueue(SESSIONS);
  await send(queue, { body: 1, sessionId: "a" });
  const receiver = await client.acceptSession(queue, "a", { receiveMode: "receiveAndDelete" });
  await receive(receiver, 1);
  await nothing(receiver);
  return "gone";
});

check("session-stream", async () => {
  const queue = await newQueue(SHORT);
  await send(queue, ...[1, 2, 3].map((body) => ({ body, sessionId: "s" })));
  const receiver = await client.acceptSession(queue, "s");
  const found = [];
  await new Promise((resolve, reject) => {
    receiver.subscribe({
      processMessage: async ({ body }) => {
        if (body === 2) await sleep(7_000);
        if (found.push(body) === 3) resolve();
      },
      processError: async ({ error }) => reject(error),
    });
  });
  same(found, [1, 2, 3], "bodies");
  await receiver.close();
  return "in order, renewed by itself";
});

check("session-needed", async () => {
  const queue = await newQueue(SESSIONS);
  const sender = client.createSender(queue);
  const codes = [await refused(["GeneralError", "InvalidOperationError"], () => sender.sendMessages({ body: 1 }))];
  const receiver = client.createReceiver(queue);
  codes.push(await refused(["GeneralError", "InvalidOperationError"], () => receiver.receiveMessages(1, { maxWaitTimeInMs: 2_000 })));
  // Whatever the reason is for which no session was opened, the client calls it so.
  const plain = await newQueue();
  codes.push(await refused("SessionCannotBeLocked", () => client.acceptSession(plain, "s")));
  return codes.join(", ");
});

check("session-subscription", async () => {
  const topic = await newTopic(["s", SESSIONS]);
  await send(topic, { body: 1, sessionId: "x" });
  const receiver = await client.acceptNextSession(topic, "s");
  const [message] = await receive(receiver, 1);
  same([receiver.sessionId, message.body], ["x", 1], "session and body");
  return "session of a subscription";
});
