// Topics: every kind of filter, actions, rules by the client.
import { admin, bodies, check, client, must, newTopic, nothing, receive, same, send } from "./harness.js";

const rule = (filter, action) => ({ defaultRuleOptions: { name: "rule", filter, action } });

async function bodiesThrough(filter, ...messages) {
  const topic = await newTopic(["filtered", rule(filter)], ["all", {}]);
  await send(topic, ...messages);
  await receive(client.createReceiver(topic, "all"), messages.length);
  const receiver = client.createReceiver(topic, "filtered", { receiveMode: "receiveAndDelete" });
  return bodies(await receiver.receiveMessages(messages.length, { maxWaitTimeInMs: 2_000 }));
}

check("filter-default", async () => {
  const topic = await newTopic(["one", {}], ["two", {}]);
  await send(topic, { body: 1 });
  for (const name of ["one", "two"]) await receive(client.createReceiver(topic, name), 1);
  return "each subscription got a copy";
});

check("filter-true-false", async () => {
  same(await bodiesThrough({ sqlExpression: "1=1" }, { body: 1 }), [1], "with 1=1");
  same(await bodiesThrough({ sqlExpression: "1=0" }, { body: 1 }), [], "with 1=0");
  return "all, and none";
});

check("filter-sql", async () => {
  const expression = "(amount > 100 AND kind IN ('a', 'b') AND name LIKE 'x%') OR sys.Label = 'always' OR EXISTS(urgent)";
  const messages = [
    { body: 1, applicationProperties: { amount: 200, kind: "a", name: "xy" } },
    { body: 2, applicationProperties: { amount: 50, kind: "a", name: "xy" } },
    { body: 3, applicationProperties: { amount: 200, kind: "c", name: "xy" } },
    { body: 4, subject: "always" },
    { body: 5, applicationProperties: { urgent: true } },
    { body: 6 },
  ];
  same(await bodiesThrough({ sqlExpression: expression }, ...messages), [1, 4, 5], "bodies");
  return expression;
});

check("filter-sql-parameters", async () => {
  const filter = { sqlExpression: "amount > @least", sqlParameters: { "@least": 10 } };
  const messages = [5, 20].map((amount) => ({ body: amount, applicationProperties: { amount } }));
  same(await bodiesThrough(filter, ...messages), [20], "bodies");
  return "amount > @least";
});

check("filter-correlation", async () => {
  const filter = { correlationId: "c", subject: "s", applicationProperties: { colour: "red" } };
  const fits = { correlationId: "c", subject: "s", applicationProperties: { colour: "red", more: 1 } };
  const messages = [{ body: 1, ...fits }, { body: 2, ...fits, subject: "t" }, { body: 3, correlationId: "c", subject: "s" }];
  same(await bodiesThrough(filter, ...messages), [1], "bodies");
  const system = { messageId: "m", to: "t", replyTo: "r", sessionId: "i", replyToSessionId: "ri", contentType: "text/plain" };
  same(await bodiesThrough(system, { body: 4, ...system }, { body: 5 }), [4], "by system properties");
  return "by nine properties, all of which have to fit";
});

check("action", async () => {
  const action = { sqlExpression: "SET sys.Label = 'seen'; SET amount = amount * 2; SET added = 'a'; REMOVE kind" };
  const topic = await newTopic(["changed", rule({ sqlExpression: "1=1" }, action)], ["all", {}]);
  await send(topic, { body: 1, subject: "s", applicationProperties: { amount: 4, kind: "k" } });
  const [changed] = await receive(client.createReceiver(topic, "changed"), 1);
  same(changed.subject, "seen", "subject");
  same(changed.applicationProperties, { amount: 8, added: "a", RuleName: "rule" }, "application properties");
  const [plain] = await receive(client.createReceiver(topic, "all"), 1);
  same(plain.applicationProperties, { amount: 4, kind: "k" }, "of the other subscription");
  return action.sqlExpression;
});

check("several-rules", async () => {
  const topic = await newTopic(["s", rule({ sqlExpression: "a = 1" })]);
  await admin.createRule(topic, "s", "other", { sqlExpression: "b = 1" });
  await send(topic, { body: "both", applicationProperties: { a: 1, b: 1 } }, { body: "b", applicationProperties: { b: 1 } });
  same(bodies(await receive(client.createReceiver(topic, "s"), 2)), ["both", "b"], "bodies");
  return "one copy, though two rules fit";
});

check("rule-manager", async () => {
  const topic = await newTopic(["s", {}]);
  const manager = client.createRuleManager(topic, "s");
  await manager.deleteRule("$Default");
  await manager.createRule("sql", { sqlExpression: "a = 1" }, { sqlExpression: "SET b = 2" });
  await manager.createRule("correlation", { subject: "s", applicationProperties: { c: 3 } });
  const rules = {};
  for await (const each of manager.listRules()) rules[each.name] = each;
  same(Object.keys(rules).sort(), ["correlation", "sql"], "rules");
  same(rules.sql.filter.sqlExpression, "a = 1", "expression");
  same(rules.correlation.filter.subject, "s", "subject");
  await send(topic, { body: 1, applicationProperties: { a: 1 } }, { body: 2 }, { body: 3, subject: "s", applicationProperties: { c: 3 } });
  const found = await receive(client.createReceiver(topic, "s"), 2);
  same(bodies(found), [1, 3], "bodies");
  same(found[0].applicationProperties.b, 2, "set by the action");
  return "deleted, created, listed and in force";
});

check("subscription-dead-letter", async () => {
  const topic = await newTopic(["s", {}]);
  await send(topic, { body: 1 });
  const receiver = client.createReceiver(topic, "s");
  await receiver.deadLetterMessage((await receive(receiver, 1))[0], { deadLetterReason: "why" });
  const [dead] = await receive(client.createReceiver(topic, "s", { subQueueType: "deadLetter" }), 1);
  same(dead.deadLetterReason, "why", "reason");
  await nothing(receiver);
  return "with its reason";
});

check("topic-schedule", async () => {
  const topic = await newTopic(["s", {}]);
  const sender = client.createSender(topic);
  const numbers = await sender.scheduleMessages([{ body: 1 }, { body: 2 }], new Date(Date.now() + 3_000));
  await sender.cancelScheduledMessages(numbers[0]);
  const receiver = client.createReceiver(topic, "s");
  same(bodies(await receive(receiver, 1)), [2], "bodies");
  await nothing(receiver);
  must(numbers.length === 2, "numbers");
  return "one came, one was cancelled";
});
