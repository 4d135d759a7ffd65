// What all checks share: clients, entities of their own, and a line of JSON for each check.
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import { setTimeout as sleep } from "node:timers/promises";

export const bus = process.env.BUS;
export const isProxied = process.env.PROXIED === "1";
const wanted = process.env.CHECKS ? new Set(process.env.CHECKS.split(",")) : null;
const AT_A_TIME = 6;
const CHECK_MS = 150_000;
const RETRIES = { maxRetries: 1, retryDelayInMs: 200, timeoutInMs: 20_000 };

export const admin = new ServiceBusAdministrationClient(bus);
export const client = new ServiceBusClient(bus, { retryOptions: RETRIES });
const checks = [];
let made = 0;

export { sleep };

export function check(name, work) {
  if (!wanted || wanted.has(name)) checks.push([name, work]);
}

export function must(condition, text) {
  if (!condition) throw new Error(text);
}

export function same(found, expected, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  must(a === b, `${what}: ${a} instead of ${b}`);
}

// The code of an error; after more than one attempt the client throws an AggregateError.
export const codeOf = (error) => {
  const last = error.errors?.at(-1) ?? error;
  return last.code ?? last.name;
};

export async function refused(code, work) {
  try {
    await work();
  } catch (error) {
    const found = codeOf(error);
    must([code].flat().includes(found), `${found} (${error.errors?.at(-1)?.message ?? error.message}) instead of ${code}`);
    return found;
  }
  throw new Error(`nothing was refused instead of ${code}`);
}

export async function newQueue(options = {}) {
  const name = `js-queue-${++made}-${Date.now()}`;
  await admin.createQueue(name, options);
  return name;
}

export async function newTopic(...subscriptions) {
  const name = `js-topic-${++made}-${Date.now()}`;
  await admin.createTopic(name);
  for (const [subscription, options] of subscriptions) await admin.createSubscription(name, subscription, options);
  return name;
}

export async function send(entity, ...messages) {
  const sender = client.createSender(entity);
  await sender.sendMessages(messages);
  await sender.close();
}

// As many as there are to be, or what came within the time.
export async function receive(receiver, count, waitMs = 20_000) {
  const found = [];
  const until = Date.now() + waitMs;
  while (found.length < count && Date.now() < until) {
    found.push(...(await receiver.receiveMessages(count - found.length, { maxWaitTimeInMs: until - Date.now() })));
  }
  must(found.length === count, `${found.length} of ${count} messages came`);
  return found;
}

export async function nothing(receiver, waitMs = 1_500) {
  const found = await receiver.receiveMessages(1, { maxWaitTimeInMs: waitMs });
  must(found.length === 0, `message ${found[0]?.messageId} came, and none should`);
}

export async function until(condition, what, waitMs = 30_000) {
  const end = Date.now() + waitMs;
  for (;;) {
    const found = await condition();
    if (found) return found;
    must(Date.now() < end, `not within ${waitMs} ms: ${what}`);
    await sleep(200);
  }
}

export const bodies = (messages) => messages.map((message) => message.body);

async function runOne(name, work) {
  const began = Date.now();
  let line;
  try {
    const tooLong = sleep(CHECK_MS, null, { ref: false }).then(() => {
      throw new Error(`not done within ${CHECK_MS} ms`);
    });
    const evidence = await Promise.race([work(), tooLong]);
    line = { check: name, passed: true, evidence: String(evidence) };
  } catch (error) {
    line = { check: name, passed: false, evidence: `${codeOf(error)}: ${error.errors?.at(-1)?.message ?? error.message}` };
  }
  process.stdout.write(JSON.stringify({ ...line, ms: Date.now() - began }) + "\n");
}

// Goes first and alone: pages go by number, and what others make meanwhile would move them.
const ALONE = "admin-pages";

export async function run() {
  const waiting = [...checks].filter(([name]) => name !== ALONE);
  for (const first of checks) if (first[0] === ALONE) await runOne(...first);
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await runOne(...next);
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, worker));
  process.exit(0);
}
