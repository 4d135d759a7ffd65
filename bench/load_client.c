/* A load client for any AMQP 1.0 broker: one connection, one link, as fast as the broker allows.
 *
 *   load_client send    HOST PORT ADDRESS COUNT WINDOW [BODY_BYTES]
 *   load_client receive HOST PORT ADDRESS COUNT WINDOW
 *
 * send: durable messages, at most WINDOW of them unsettled; ends when COUNT are accepted.
 * receive: a credit of WINDOW, each message accepted and settled; ends when the broker has answered the detach that
 * follows the last of COUNT, so it has read every settlement. With CONFIRM=1 in the environment a settlement counts
 * when the broker has confirmed it (receiver settles second), which not every broker offers.
 *
 * BENCH_COLOUR in the environment is the application property `colour` of every message: something for rules to look at.
 * BENCH_USER and BENCH_PASSWORD in the environment mean SASL PLAIN, otherwise ANONYMOUS is used: a password does not
 * belong into the process list. Prints {"count": ..., "seconds": ..., "rate": ...}; the time begins with the first
 * credit, or with the first grant of it. A sender with a WINDOW of 1 adds "p50_ms" and "p99_ms": from each transfer to its
 * answer. Nothing heard for SILENCE_MS ends it with code 1 and a line on stderr.
 */

#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/proactor.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/transport.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SILENCE_MS = 30000, READ_BYTES = 64 * 1024, FRAME_BYTES = 64 * 1024 };

typedef struct {
  bool sends, confirms;
  const char *host, *port, *address;
  long count, window, body_bytes;

  pn_proactor_t *proactor;
  pn_link_t *link;
  char *payload;
  size_t payload_bytes;
  long started, done; /* messages sent or accepted by us; messages the broker has settled */
  long heard, heard_at_last_look;
  struct timespec began, ended;
  struct timespec sent_at; /* of the last transfer */
  double *waits_ms;        /* with one message in flight: how long each was waited for; else NULL */
  bool timing, finished;
} load_t;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "load client: %s%s%s\n", what, why ? ": " : "", why ? why : "");
  exit(1);
}

static double seconds_between(const struct timespec *begin, const struct timespec *end) {
  return (double)(end->tv_sec - begin->tv_sec) + (double)(end->tv_nsec - begin->tv_nsec) / 1e9;
}

/* --- the message ------------------------------------------------------------------------------------------------ */

static void put_colour(pn_data_t *properties, const char *colour) {
  if (!colour) return;
  pn_data_put_map(properties);
  pn_data_enter(properties);
  pn_data_put_string(properties, pn_bytes(strlen("colour"), "colour"));
  pn_data_put_string(properties, pn_bytes(strlen(colour), colour));
  pn_data_exit(properties);
}

/* Encoded once: what is measured is the broker. */
static void encode_message(load_t *load) {
  char *body = malloc((size_t)load->body_bytes);
  size_t room = (size_t)load->body_bytes + 1024;
  pn_message_t *message = pn_message();
  memset(body, 'x', (size_t)load->body_bytes);
  pn_message_set_durable(message, true);
  pn_message_set_inferred(message, true); /* a data section rather than a value */
  pn_data_put_string(pn_message_id(message), pn_bytes(16, "0123456789abcdef"));
  pn_message_set_content_type(message, "application/json");
  put_colour(pn_message_properties(message), getenv("BENCH_COLOUR"));
  pn_data_put_binary(pn_message_body(message), pn_bytes((size_t)load->body_bytes, body));
  load->payload = malloc(room);
  if (pn_message_encode(message, load->payload, &room) != 0) fail("the message cannot be encoded", NULL);
  load->payload_bytes = room;
  pn_message_free(message);
  free(body);
}

/* --- start and end ---------------------------------------------------------------------------------------------- */

static void open_link(load_t *load, pn_connection_t *connection) {
  pn_session_t *session = pn_session(connection);
  pn_connection_set_container(connection, load->sends ? "bench-sender" : "bench-receiver");
  pn_connection_open(connection);
  pn_session_set_incoming_capacity(session, 64 * 1024 * 1024);
  pn_session_open(session);
  if (load->sends) {
    load->link = pn_sender(session, "bench-sender");
    pn_terminus_set_address(pn_link_target(load->link), load->address);
    pn_link_set_snd_settle_mode(load->link, PN_SND_UNSETTLED);
  } else {
    load->link = pn_receiver(session, "bench-receiver");
    pn_terminus_set_address(pn_link_source(load->link), load->address);
    pn_link_set_rcv_settle_mode(load->link, load->confirms ? PN_RCV_SECOND : PN_RCV_FIRST);
  }
  pn_link_open(load->link);
}

static void start_clock(load_t *load) {
  if (!load->timing) {
    load->timing = true;
    clock_gettime(CLOCK_MONOTONIC, &load->began);
  }
}

static void finish(load_t *load) {
  load->finished = true;
  clock_gettime(CLOCK_MONOTONIC, &load->ended);
  pn_connection_close(pn_session_connection(pn_link_session(load->link)));
}

/* --- sending ---------------------------------------------------------------------------------------------------- */

static void send_some(load_t *load) {
  while (pn_link_credit(load->link) > 0 && load->started < load->count && load->started - load->done < load->window) {
    start_clock(load);
    if (load->waits_ms) clock_gettime(CLOCK_MONOTONIC, &load->sent_at);
    pn_delivery(load->link, pn_dtag((const char *)&load->started, sizeof load->started));
    pn_link_send(load->link, load->payload, load->payload_bytes);
    pn_link_advance(load->link);
    load->started++;
  }
}

static void note_wait(load_t *load) {
  struct timespec now;
  if (!load->waits_ms) return;
  clock_gettime(CLOCK_MONOTONIC, &now);
  load->waits_ms[load->done] = seconds_between(&load->sent_at, &now) * 1e3;
}

static void note_answer(load_t *load, pn_delivery_t *delivery) {
  if (!pn_delivery_updated(delivery)) return;
  if (pn_delivery_remote_state(delivery) != PN_ACCEPTED) fail("a message was not accepted", NULL);
  pn_delivery_settle(delivery);
  note_wait(load);
  if (++load->done == load->count) finish(load);
}

/* --- receiving -------------------------------------------------------------------------------------------------- */

/* Credit is given back in pieces, as clients with a prefetch do, and never for more than is still wanted. */
static void grant(load_t *load) {
  long wanted = load->count - load->started;
  long missing = (wanted < load->window ? wanted : load->window) - pn_link_credit(load->link);
  if (missing > 0 && (missing >= load->window / 4 || missing + pn_link_credit(load->link) == wanted))
    pn_link_flow(load->link, (int)missing);
}

static void take_message(load_t *load, pn_delivery_t *delivery) {
  static char read[READ_BYTES];
  while (pn_link_recv(load->link, read, sizeof read) > 0) {}
  pn_delivery_update(delivery, PN_ACCEPTED);
  pn_link_advance(load->link);
  load->started++;
  if (!load->confirms) {
    pn_delivery_settle(delivery);
    if (++load->done == load->count) pn_link_close(load->link);
  }
  grant(load);
}

static void note_confirmation(load_t *load, pn_delivery_t *delivery) {
  if (pn_delivery_remote_state(delivery) != PN_ACCEPTED) fail("a settlement was not confirmed", NULL);
  pn_delivery_settle(delivery);
  if (++load->done == load->count) finish(load);
}

/* --- events ----------------------------------------------------------------------------------------------------- */

static void note_delivery(load_t *load, pn_delivery_t *delivery) {
  if (load->sends)
    note_answer(load, delivery);
  else if (pn_delivery_readable(delivery) && !pn_delivery_partial(delivery))
    take_message(load, delivery);
  else if (pn_delivery_settled(delivery))
    note_confirmation(load, delivery);
}

static void check(pn_condition_t *condition, const char *what) {
  if (pn_condition_is_set(condition)) {
    fprintf(stderr, "load client: %s: %s\n", pn_condition_get_name(condition), pn_condition_get_description(condition));
    fail(what, NULL);
  }
}

static void look_for_silence(load_t *load) {
  if (load->heard == load->heard_at_last_look) fail("the broker has gone silent", NULL);
  load->heard_at_last_look = load->heard;
  pn_proactor_set_timeout(load->proactor, SILENCE_MS);
}

/* False when the connection is over. */
static bool handle(load_t *load, pn_event_t *event) {
  load->heard++;
  switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT:
      open_link(load, pn_event_connection(event));
      return true;
    case PN_LINK_REMOTE_OPEN:
      if (!load->sends) {
        start_clock(load);
        grant(load);
      }
      return true;
    case PN_LINK_FLOW:
      if (load->sends) send_some(load);
      return true;
    case PN_DELIVERY:
      note_delivery(load, pn_event_delivery(event));
      if (load->sends) send_some(load);
      return true;
    case PN_LINK_REMOTE_CLOSE:
    case PN_LINK_REMOTE_DETACH:
      check(pn_link_remote_condition(pn_event_link(event)), "the link was closed");
      if (load->done < load->count) fail("the link was closed", NULL);
      if (!load->finished) finish(load);
      return true;
    case PN_SESSION_REMOTE_CLOSE:
      check(pn_session_remote_condition(pn_event_session(event)), "the session was closed");
      return true;
    case PN_CONNECTION_REMOTE_CLOSE:
      check(pn_connection_remote_condition(pn_event_connection(event)), "the connection was closed");
      return true;
    case PN_TRANSPORT_CLOSED:
      if (!load->finished) check(pn_transport_condition(pn_event_transport(event)), "the connection broke");
      return false;
    case PN_PROACTOR_TIMEOUT:
      load->heard--;
      look_for_silence(load);
      return true;
    default:
      return true;
  }
}

static void run(load_t *load) {
  char address[PN_MAX_ADDR];
  pn_transport_t *transport = pn_transport();
  pn_connection_t *connection = pn_connection();
  const char *user = getenv("BENCH_USER"), *password = getenv("BENCH_PASSWORD");
  bool going = true;

  pn_sasl_allowed_mechs(pn_sasl(transport), user ? "PLAIN" : "ANONYMOUS");
  pn_sasl_set_allow_insecure_mechs(pn_sasl(transport), true); /* loopback only */
  pn_transport_set_max_frame(transport, FRAME_BYTES);
  if (user) {
    pn_connection_set_user(connection, user);
    pn_connection_set_password(connection, password ? password : "");
  }
  load->proactor = pn_proactor();
  pn_proactor_set_timeout(load->proactor, SILENCE_MS);
  pn_proactor_addr(address, sizeof address, load->host, load->port);
  pn_proactor_connect2(load->proactor, connection, transport, address);
  while (going) {
    pn_event_batch_t *events = pn_proactor_wait(load->proactor);
    pn_event_t *event;
    while (going && (event = pn_event_batch_next(events))) going = handle(load, event);
    pn_proactor_done(load->proactor, events);
  }
}

static int compare(const void *one, const void *other) {
  double difference = *(const double *)one - *(const double *)other;
  return (difference > 0) - (difference < 0);
}

static void print_result(load_t *load) {
  double took = seconds_between(&load->began, &load->ended);
  printf("{\"count\": %ld, \"seconds\": %.6f, \"rate\": %.1f", load->count, took, (double)load->count / took);
  if (load->waits_ms) {
    qsort(load->waits_ms, (size_t)load->count, sizeof(double), compare);
    printf(", \"p50_ms\": %.3f, \"p99_ms\": %.3f", load->waits_ms[load->count / 2], load->waits_ms[load->count * 99 / 100]);
  }
  printf("}\n");
}

static long positive(const char *text, const char *what) {
  char *end;
  long value = strtol(text, &end, 10);
  if (*end || value <= 0) fail(what, "must be a positive number");
  return value;
}

int main(int argc, char **argv) {
  load_t load = {0};
  bool knows_mode = argc > 1 && (!strcmp(argv[1], "send") || !strcmp(argv[1], "receive"));
  if (argc < 7 || argc > 8 || !knows_mode) fail("usage", "load_client send|receive HOST PORT ADDRESS COUNT WINDOW [BODY_BYTES]");
  load.sends = !strcmp(argv[1], "send");
  load.confirms = getenv("CONFIRM") != NULL;
  load.host = argv[2];
  load.port = argv[3];
  load.address = argv[4];
  load.count = positive(argv[5], "COUNT");
  load.window = positive(argv[6], "WINDOW");
  load.body_bytes = argc > 7 ? positive(argv[7], "BODY_BYTES") : 1024;
  if (load.sends && load.window == 1) load.waits_ms = calloc((size_t)load.count, sizeof(double));
  encode_message(&load);
  run(&load);
  if (!load.finished) fail("the connection ended too early", NULL);
  print_result(&load);
  return 0;
}
