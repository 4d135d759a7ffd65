// WebSocket, and what is refused: wrong key, missing right, full, disabled, busy.
import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import WebSocket from "ws";
import { admin, bus, check, client, isProxied, must, newQueue, receive, refused, same, send, sleep, until } from "./harness.js";

const QUICK = { retryOptions: { maxRetries: 0, timeoutInMs: 20_000 } };

async function withClient(string, options, work) {
  const other = new ServiceBusClient(string, options);
  try {
    return await work(other);
  } finally {
    await other.close();
  }
}

check("websocket", async () => {
  const queue = await newQueue();
  const body = Buffer.alloc(200 * 1024, 3);
  await withClient(bus, { webSocketOptions: { webSocket: WebSocket } }, async (other) => {
    const sender = other.createSender(queue);
    await sender.sendMessages([{ body: 1 }]);
    await sender.sendMessages({ body });
    const receiver = other.createReceiver(queue);
    const [small, large] = await receive(receiver, 2);
    same(small.body, 1, "body");
    must(body.equals(large.body), "the large body came back changed");
    for (const message of [small, large]) await receiver.completeMessage(message);
  });
  return "sent, received and completed, 200 KiB too";
});

check("wrong-key", async () => {
  const queue = await newQueue();
  const string = bus.replace(/SharedAccessKey=[^;]+/, "SharedAccessKey=d3Jvbmc=");
  const code = await withClient(string, QUICK, (other) =>
    refused("UnauthorizedAccess", () => other.createSender(queue).sendMessages({ body: 1 })),
  );
  const administration = new ServiceBusAdministrationClient(string);
  return `${code}, ${await refused("UnauthorizedRequestError", () => administration.getQueue(queue))}`;
});

check("missing-right", async () => {
  const queue = await newQueue();
  const codes = [];
  await withClient(process.env.BUS_SENDER, QUICK, async (sender) => {
    await sender.createSender(queue).sendMessages({ body: 1 });
    const receiver = sender.createReceiver(queue);
    codes.push(await refused("UnauthorizedAccess", () => receiver.receiveMessages(1, { maxWaitTimeInMs: 2_000 })));
  });
  await withClient(process.env.BUS_LISTENER, QUICK, async (listener) => {
    await receive(listener.createReceiver(queue), 1);
    codes.push(await refused("UnauthorizedAccess", () => listener.createSender(queue).sendMessages({ body: 1 })));
  });
  const administration = new ServiceBusAdministrationClient(process.env.BUS_LISTENER);
  codes.push(await refused(["UnauthorizedRequestError", "QuotaExceededError", "ServiceError"], () => administration.createQueue("none")));
  return codes.join(", ");
});

check("no-such-entity", async () => {
  const sender = client.createSender("missing");
  const codes = [await refused("MessagingEntityNotFound", () => sender.sendMessages({ body: 1 }))];
  const receiver = client.createReceiver("missing");
  codes.push(await refused("MessagingEntityNotFound", () => receiver.receiveMessages(1, { maxWaitTimeInMs: 2_000 })));
  return codes.join(", ");
});

check("full", async () => {
  const queue = await newQueue({ maxSizeInMegabytes: 1 });
  const sender = client.createSender(queue);
  const fill = async () => {
    for (let count = 0; count < 12; count += 1) await sender.sendMessages({ body: Buffer.alloc(200 * 1024) });
  };
  const code = await refused("QuotaExceeded", fill);
  if (isProxied) {
    const accepted = () => sender.sendMessages({ body: Buffer.alloc(200 * 1024) }).then(() => true, () => false);
    await until(accepted, "sends go on", 60_000);
    return `${code}, until the proxy took it for an outage: sends go on`;
  }
  const receiver = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
  await receive(receiver, 3);
  await sender.sendMessages({ body: 1 });
  return `${code}; taken again when there was room`;
});

check("disabled", async () => {
  const queue = await newQueue();
  const codes = [];
  const change = async (status) => admin.updateQueue({ ...(await admin.getQueue(queue)), status });
  await change("Disabled");
  await withClient(bus, QUICK, async (other) => {
    if (!isProxied) codes.push(await refused("MessagingEntityDisabled", () => other.createSender(queue).sendMessages({ body: 1 })));
    const receiver = other.createReceiver(queue);
    codes.push(await refused("MessagingEntityDisabled", () => receiver.receiveMessages(1, { maxWaitTimeInMs: 2_000 })));
  });
  await change("ReceiveDisabled");
  await send(queue, { body: 2 });
  await change("Active");
  await receive(client.createReceiver(queue), 1);
  return codes.join(", ");
});

check("busy", async () => {
  const options = { retryOptions: { maxRetries: 0, timeoutInMs: 60_000 } }; // the proxy waits and tries again by itself
  const code = await withClient(bus, options, (other) =>
    refused("ServiceBusy", () => other.createSender("busy").sendMessages({ body: 1 })),
  );
  return code;
});

check("busy-once", async () => {
  const options = { retryOptions: { maxRetries: 2, retryDelayInMs: 200, timeoutInMs: 20_000 } };
  await withClient(bus, options, (other) => other.createSender("busy-once").sendMessages({ body: 1 }));
  await receive(client.createReceiver("busy-once"), 1);
  return "sent again by itself after a refusal";
});

check("connection-lost", () =>
  withClient(bus, { retryOptions: { maxRetries: 3, retryDelayInMs: 500, timeoutInMs: 10_000 } }, async (other) => {
    const found = [];
    const errors = [];
    const subscription = other.createReceiver("dropped").subscribe({
      processMessage: async ({ body }) => void found.push(body),
      processError: async ({ error }) => void errors.push(error.code),
    });
    const sender = other.createSender("dropped");
    await sender.sendMessages({ body: 1 });
    await until(() => found.includes(1), "the first message");
    process.stdout.write('{"do": "drop"}\n');
    await sleep(2_000);
    await sender.sendMessages({ body: 2 });
    await until(() => found.includes(2), "the second one received", 60_000);
    await subscription.close();
    return "sender and receiver went on after their connection was reset";
  }),
);
