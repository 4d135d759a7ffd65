// The administration client.
import { admin, check, client, must, newQueue, newTopic, receive, refused, same, send } from "./harness.js";

async function all(pages) {
  const found = [];
  for await (const one of pages) found.push(one);
  return found;
}

check("admin-queue", async () => {
  const target = await newQueue();
  const given = {
    lockDuration: "PT45S", maxSizeInMegabytes: 2048, requiresDuplicateDetection: true, requiresSession: false,
    defaultMessageTimeToLive: "P2D", deadLetteringOnMessageExpiration: true, duplicateDetectionHistoryTimeWindow: "PT5M",
    maxDeliveryCount: 7, enableBatchedOperations: false, userMetadata: "notes", autoDeleteOnIdle: "PT1H",
  };
  const name = await newQueue({ ...given, forwardDeadLetteredMessagesTo: target });
  const queue = await admin.getQueue(name);
  for (const [key, value] of Object.entries(given)) same(queue[key], value, key);
  must(queue.forwardDeadLetteredMessagesTo.endsWith(target), `dead letters go to ${queue.forwardDeadLetteredMessagesTo}`);
  const updated = await admin.updateQueue({ ...queue, maxDeliveryCount: 9, lockDuration: "PT20S" });
  same([updated.maxDeliveryCount, updated.lockDuration], [9, "PT20S"], "after the update");
  must((await all(admin.listQueues())).some((one) => one.name === name), "it is not listed");
  same(await admin.queueExists(name), true, "exists");
  await admin.deleteQueue(name);
  same(await admin.queueExists(name), false, "exists after it was deleted");
  return `${Object.keys(given).length} settings, updated, listed, deleted`;
});

check("admin-topic", async () => {
  const given = { defaultMessageTimeToLive: "P3D", maxSizeInMegabytes: 3072, userMetadata: "notes", enableBatchedOperations: true };
  const name = await newTopic();
  await admin.deleteTopic(name);
  await admin.createTopic(name, given);
  const topic = await admin.getTopic(name);
  for (const [key, value] of Object.entries(given)) same(topic[key], value, key);
  same((await admin.updateTopic({ ...topic, userMetadata: "new" })).userMetadata, "new", "metadata");
  must((await all(admin.listTopics())).some((one) => one.name === name), "it is not listed");
  same((await admin.getTopicRuntimeProperties(name)).subscriptionCount, 0, "subscriptions");
  return `${Object.keys(given).length} settings, updated, listed`;
});

check("admin-subscription", async () => {
  const given = {
    lockDuration: "PT25S", requiresSession: true, defaultMessageTimeToLive: "P1D", deadLetteringOnMessageExpiration: true,
    deadLetteringOnFilterEvaluationExceptions: false, maxDeliveryCount: 4, userMetadata: "notes",
  };
  const topic = await newTopic(["s", given]);
  const subscription = await admin.getSubscription(topic, "s");
  for (const [key, value] of Object.entries(given)) same(subscription[key], value, key);
  same((await admin.updateSubscription({ ...subscription, maxDeliveryCount: 5 })).maxDeliveryCount, 5, "after the update");
  same((await all(admin.listSubscriptions(topic))).map((one) => one.subscriptionName), ["s"], "listed");
  await send(topic, { body: 1, sessionId: "x" });
  same((await admin.getSubscriptionRuntimeProperties(topic, "s")).activeMessageCount, 1, "messages");
  await admin.deleteSubscription(topic, "s");
  same(await admin.subscriptionExists(topic, "s"), false, "exists after it was deleted");
  return `${Object.keys(given).length} settings, updated, listed, counted, deleted`;
});

check("admin-rules", async () => {
  const topic = await newTopic(["s", {}]);
  same((await all(admin.listRules(topic, "s"))).map((one) => one.name), ["$Default"], "rules of a new subscription");
  await admin.createRule(topic, "s", "sql", { sqlExpression: "a = @a", sqlParameters: { "@a": 1 } }, { sqlExpression: "SET b = 2" });
  await admin.createRule(topic, "s", "correlation", { subject: "s", applicationProperties: { text: "t", number: 2, truth: true } });
  const sql = await admin.getRule(topic, "s", "sql");
  same([sql.filter.sqlExpression, sql.filter.sqlParameters, sql.action.sqlExpression], ["a = @a", { "@a": 1 }, "SET b = 2"], "SQL rule");
  const correlation = await admin.getRule(topic, "s", "correlation");
  same(correlation.filter.applicationProperties, { text: "t", number: 2, truth: true }, "properties");
  await admin.updateRule(topic, "s", { ...sql, filter: { sqlExpression: "c = 1" } });
  same((await admin.getRule(topic, "s", "sql")).filter.sqlExpression, "c = 1", "after the update");
  await admin.deleteRule(topic, "s", "$Default");
  same((await all(admin.listRules(topic, "s"))).map((one) => one.name).sort(), ["correlation", "sql"], "after one was deleted");
  await refused("ServiceError", () => admin.createRule(topic, "s", "bad", { sqlExpression: "a = = 1" }));
  return "SQL and correlation, created, read, updated, deleted; a wrong one refused";
});

check("admin-counts", async () => {
  const queue = await newQueue();
  await send(queue, { body: 1 }, { body: 2 }, { body: 3 });
  await client.createSender(queue).scheduleMessages({ body: 4 }, new Date(Date.now() + 60_000));
  const receiver = client.createReceiver(queue);
  const [message] = await receive(receiver, 1);
  await receiver.deadLetterMessage(message);
  const counts = await admin.getQueueRuntimeProperties(queue);
  same([counts.activeMessageCount, counts.deadLetterMessageCount, counts.scheduledMessageCount], [2, 1, 1], "counts");
  must(counts.sizeInBytes > 0 && counts.createdAt <= new Date(), "size and time");
  return `2 active, 1 dead-lettered, 1 scheduled, ${counts.sizeInBytes} bytes`;
});

check("admin-namespace", async () => {
  const found = await admin.getNamespaceProperties();
  must(found.name && found.createdAt, "name and time");
  return `${found.name}, ${found.messagingSku}`;
});

check("admin-errors", async () => {
  const queue = await newQueue();
  const codes = [
    await refused("MessageEntityAlreadyExistsError", () => admin.createQueue(queue)),
    await refused("MessageEntityNotFoundError", () => admin.getQueue("missing")),
    await refused("MessageEntityNotFoundError", () => admin.deleteTopic("missing")),
    await refused("ServiceError", () => admin.createQueue(`${queue}-bad`, { lockDuration: "PT10M" })),
  ];
  return codes.join(", ");
});

check("admin-pages", async () => {
  const names = await Promise.all(Array.from({ length: 7 }, () => newQueue()));
  const found = [];
  for await (const page of admin.listQueues().byPage({ maxPageSize: 3 })) {
    must(page.length <= 3, `${page.length} in a page of 3`);
    found.push(...page.map((one) => one.name));
  }
  must(names.every((name) => found.includes(name)), "some are missing");
  same(new Set(found).size, found.length, "no queue twice");
  return "7 queues and more in pages of 3";
});
