// The official JavaScript client, as the README of the folder above says.
import { ServiceBusClient } from "@azure/service-bus";
import { fsyncSync, openSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const BATCH = 5;
const AFTER_FAILURE_MS = 500;
const DUE_MS = 1_000;

class IdFile {
  constructor(path) {
    this.descriptor = openSync(path, "a");
    this.counts = { accepted: 0, failed: 0, received: 0, problem: 0 };
  }

  add(...lines) {
    for (const [kind] of lines) this.counts[kind] += 1;
    writeSync(this.descriptor, lines.map((words) => words.join(" ").replaceAll("\n", " ") + "\n").join(""));
    fsyncSync(this.descriptor);
  }
}

function* rounds(prefix) {
  for (let number = 0; ; ) {
    for (const how of ["single", "batch", "schedule"]) {
      const count = how === "single" ? 1 : BATCH;
      yield [how, Array.from({ length: count }, (_, each) => `${prefix}-${number + each}`)];
      number += count;
    }
  }
}

// After more than one attempt the SDK throws an AggregateError; the last of its errors says what it was.
const kindOf = (error) => {
  const last = error.errors?.at(-1) ?? error;
  return `${error.name}${last.code ? `(${last.code})` : ""}`;
};
const textOf = (error) => String(error.errors?.at(-1)?.message ?? error.message);
const described = (message) => ({
  id: message.messageId,
  sequence: Number(message.sequenceNumber),
  delivery_count: message.deliveryCount,
});

const client = new ServiceBusClient(process.env.BUS);
const senders = new Map();
const receivers = new Map();
const kept = new Map();
const files = [];
const loops = [];
const subscriptions = [];
let stopping = false;

const senderOf = (entity) => senders.get(entity) ?? senders.set(entity, client.createSender(entity)).get(entity);
const receiverOf = (entity) =>
  receivers.get(entity) ?? receivers.set(entity, client.createReceiver(entity)).get(entity);

async function send(entity, how, ids) {
  const sender = senderOf(entity);
  const messages = ids.map((id) => ({ messageId: id, body: id }));
  if (how === "schedule") {
    await sender.scheduleMessages(messages, new Date(Date.now() + DUE_MS));
  } else if (how === "batch") {
    const batch = await sender.createMessageBatch();
    for (const message of messages) batch.tryAddMessage(message);
    await sender.sendMessages(batch);
  } else {
    await sender.sendMessages(messages[0]);
  }
}

async function keepSending({ entity, prefix, pause_ms }, file) {
  for (const [how, ids] of rounds(prefix)) {
    if (stopping) return;
    try {
      await send(entity, how, ids);
      file.add(...ids.map((id) => ["accepted", id]));
    } catch (error) {
      file.add(...ids.map((id) => ["failed", id, kindOf(error), textOf(error)]));
      await sleep(AFTER_FAILURE_MS);
    }
    await sleep(pause_ms);
  }
}

function keepReceiving({ entity }, file) {
  const receiver = client.createReceiver(entity);
  subscriptions.push(
    receiver.subscribe({
      processMessage: async (message) => {
        file.add(["received", message.messageId, message.sequenceNumber, message.deliveryCount]);
      }, // it is completed when this returns
      processError: async ({ error }) => {
        file.add(["problem", kindOf(error), textOf(error)]);
      },
    }),
  );
}

function opened(path) {
  const file = new IdFile(path);
  files.push(file);
  return file;
}

const commands = {
  async send({ entity, how, ids }) {
    await send(entity, how, ids);
  },
  async receive({ entity, max, wait_ms }) {
    const receiver = receiverOf(entity);
    const messages = await receiver.receiveMessages(max, { maxWaitTimeInMs: wait_ms });
    for (const message of messages) kept.set(message.messageId, [receiver, message]);
    return { messages: messages.map(described) };
  },
  async settle({ message: id, how }) {
    const [receiver, message] = kept.get(id);
    await (how === "complete" ? receiver.completeMessage(message) : receiver.abandonMessage(message));
  },
  async renew({ message: id }) {
    const [receiver, message] = kept.get(id);
    await receiver.renewMessageLock(message);
  },
  async peek({ entity, max }) {
    return { messages: (await receiverOf(entity).peekMessages(max)).map(described) };
  },
  async "start-sending"(command) {
    loops.push(keepSending(command, opened(command.file)));
  },
  async "start-receiving"(command) {
    keepReceiving(command, opened(command.file));
  },
  async stop() {
    stopping = true;
    await Promise.all(loops);
    await Promise.all(subscriptions.map((subscription) => subscription.close()));
    const sum = (kind) => files.reduce((total, file) => total + file.counts[kind], 0);
    return { accepted: sum("accepted"), failed: sum("failed"), received: sum("received") };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const began = performance.now();
  let values;
  try {
    values = await commands[command.do](command);
  } catch (error) {
    values = { error: kindOf(error), text: textOf(error) };
  }
  const ms = Math.round(performance.now() - began);
  process.stdout.write(JSON.stringify({ id: command.id, ms, ...values }) + "\n");
}
await client.close();
process.exit(0);
