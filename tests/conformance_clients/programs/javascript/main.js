// Goes through all that the official JavaScript client promises; writes one line of JSON for each check.
import "./queues.js";
import "./sessions.js";
import "./topics.js";
import "./administration.js";
import "./failures.js";
import { run } from "./harness.js";

await run();
