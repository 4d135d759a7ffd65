"""Topics, subscriptions and rules, in the machine: who gets what, in one commit, and still after a crash."""

from __future__ import annotations

import pytest
from namespace_harness import START_MS, NamespaceHarness, names, properties_of

from twinbus.amqp.codec.types import Timestamp
from twinbus.amqp.message import sections
from twinbus.amqp.message.sections import Header, PropertyField
from twinbus.broker.core import registry
from twinbus.broker.core.commands import (
    CancelScheduled,
    Command,
    CreateQueue,
    CreateRule,
    CreateSubscription,
    CreateTopic,
    DeleteEntity,
    DeleteRule,
    GetEntity,
    GetRule,
    ListRules,
    ListSubscriptions,
    ListTopics,
    OpenReceiver,
    OpenSender,
    PeekMessages,
    SendMessages,
    UpdateRule,
    UpdateSubscription,
    UpdateTopic,
)
from twinbus.broker.core.replies import EntitiesFound, RulesFound, SubscriptionDescription, TopicDescription
from twinbus.broker.entities.settings import QueueSettings, QueueStatus, TopicSettings
from twinbus.broker.entities.topics.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    SqlAction,
    SqlFilter,
    TypedValue,
)
from twinbus.broker.message import SCHEDULED_TIME, Arrival, read_arrival
from twinbus.broker.operations import Complete, DeadLetter, Done, ReceiveMode, ReceiverLost
from twinbus.broker.store.api import Change, InsertCopies
from twinbus.broker.store.memory import MemoryStore
from twinbus.errors import (
    ArgumentError,
    EntityAlreadyExists,
    EntityDisabled,
    EntityNotFound,
    MessageNotFound,
    MessageTooLarge,
    NotAllowed,
    QuotaExceeded,
)

TOPIC = "Events"
AUDIT = "events/subscriptions/audit"
BILLING = "events/subscriptions/billing"


def event(
    name: str, *, due_at_ms: int | None = None, ttl_ms: int | None = None, body: bytes = b"body", **properties: object
) -> Arrival:
    """A message at the topic; `label` is its subject, the other properties are its application's."""
    label = properties.pop("label", None)
    payload = sections.encode_message(
        header=None if ttl_ms is None else Header(ttl_ms=ttl_ms),
        annotations=None if due_at_ms is None else {SCHEDULED_TIME: Timestamp(due_at_ms)},
        properties={PropertyField.MESSAGE_ID: name, PropertyField.SUBJECT: label},
        application_properties=properties or None,
        data=body,
    )
    return read_arrival(payload, lambda: "unused")


def publish(harness: NamespaceHarness, *arrivals: Arrival | str) -> tuple[int, ...]:
    reply = harness.ask(SendMessages(TOPIC, tuple(event(each) if isinstance(each, str) else each for each in arrivals)))
    assert isinstance(reply, Done), reply
    return reply.sequences


def contents(harness: NamespaceHarness, path: str) -> list[str | None]:
    return names(harness.peek(path=path))


def accept(harness: NamespaceHarness, command: Command[object]) -> None:
    reply = harness.ask(command)
    assert isinstance(reply, Done), reply


@pytest.fixture
def harness() -> NamespaceHarness:
    """A topic with the subscriptions `audit`, which gets everything, and `billing`, which has no rule."""
    harness = NamespaceHarness()
    accept(harness, CreateTopic(TOPIC, TopicSettings()))
    accept(harness, CreateSubscription(TOPIC, "Audit", QueueSettings()))
    accept(harness, CreateSubscription(TOPIC, "billing", QueueSettings(), Rule("nothing", FalseFilter())))
    return harness


def add_rule(harness: NamespaceHarness, rule: Rule, path: str = BILLING) -> None:
    accept(harness, CreateRule(path, rule))


# --- fan-out ---


def test_each_subscription_gets_what_its_rules_say(harness: NamespaceHarness) -> None:
    add_rule(harness, Rule("paid", CorrelationFilter(label="paid")))
    assert publish(harness, event("1", label="paid"), event("2", label="sent"), event("3", label="paid")) == (1, 2, 3)
    assert contents(harness, AUDIT) == ["1", "2", "3"]
    assert contents(harness, BILLING) == ["1", "3"]


def test_a_message_that_nobody_wants_is_accepted_and_gone(harness: NamespaceHarness) -> None:
    accept(harness, DeleteEntity(AUDIT))
    assert publish(harness, "1") == (1,)
    assert publish(harness, "2") == (2,)


def test_a_subscription_numbers_its_own_messages_and_shows_the_number_of_the_topic(harness: NamespaceHarness) -> None:
    add_rule(harness, Rule("paid", CorrelationFilter(label="paid")))
    publish(harness, event("1"), event("2", label="paid"))
    (row,) = harness.peek(path=BILLING)
    assert (row.sequence, row.enqueue_sequence) == (1, 2)


def test_rules_that_only_select_make_one_copy_together(harness: NamespaceHarness) -> None:
    add_rule(harness, Rule("paid", CorrelationFilter(label="paid")))
    add_rule(harness, Rule("all", SqlFilter("1=1")))
    publish(harness, event("1", label="paid"))
    assert contents(harness, BILLING) == ["1"]


def test_each_rule_with_an_action_makes_a_copy_that_says_so(harness: NamespaceHarness) -> None:
    add_rule(harness, Rule("all", SqlFilter("1=1")))
    add_rule(harness, Rule("red", SqlFilter("1=1"), SqlAction("SET colour = 'red'")))
    add_rule(harness, Rule("Blue", SqlFilter("1=1"), SqlAction("SET Colour = 'blue'; REMOVE size")))
    publish(harness, event("1", COLOUR="none", size=3))
    assert contents(harness, BILLING) == ["1", "1", "1"]
    assert sorted((properties_of(row) for row in harness.peek(path=BILLING)), key=str) == sorted(
        [
            {"COLOUR": "none", "size": 3},
            {"colour": "red", "size": 3, "RuleName": "red"},
            {"Colour": "blue", "RuleName": "Blue"},
        ],
        key=str,
    )


def test_an_action_can_change_system_properties(harness: NamespaceHarness) -> None:
    text = "SET sys.MessageId = 'other'; SET sys.Label = 'new'; SET sys.To = 'me'"
    add_rule(harness, Rule("change", SqlFilter("1=1"), SqlAction(text)))
    publish(harness, event("1", label="old"))
    (row,) = harness.peek(path=BILLING)
    assert row.message_id == "other"
    fields = (PropertyField.MESSAGE_ID, PropertyField.SUBJECT, PropertyField.TO)
    layout = sections.walk(row.payload)
    assert sections.read_properties(row.payload, layout, tuple(map(int, fields))) == ("other", "new", "me")


@pytest.mark.parametrize("action", ["SET sys.MessageId = a + a + 'x'", "SET more = long + long"])
def test_an_action_that_makes_a_message_too_large_fails_alone(harness: NamespaceHarness, action: str) -> None:
    add_rule(harness, Rule("grow", SqlFilter("1=1"), SqlAction(action)))
    publish(harness, event("1", a="a" * 64, long="b" * 16_384, longer="c" * 20_000, other="d" * 8_000))
    assert (contents(harness, AUDIT), contents(harness, BILLING)) == (["1"], [])
    (row,) = harness.peek(path=BILLING + "/$DeadLetterQueue")
    assert properties_of(row)["DeadLetterReason"] == "FilterEvaluationException"


def test_all_copies_are_committed_together_and_share_a_payload(harness: NamespaceHarness) -> None:
    add_rule(harness, Rule("all", SqlFilter("1=1")))
    submitted: list[tuple[Change, ...]] = []

    class Watched(MemoryStore):
        def submit(self, number: int, changes: tuple[Change, ...]) -> None:
            submitted.append(changes)
            super().submit(number, changes)

    harness.store.__class__ = Watched
    publish(harness, "1")
    (changes,) = submitted
    (copies,) = [change for change in changes if isinstance(change, InsertCopies)]
    assert len(copies.rows) == 2
    assert copies.rows[0].payload is copies.rows[1].payload


def test_nothing_is_delivered_before_it_is_committed(harness: NamespaceHarness) -> None:
    harness.open(1, credit=5, path=AUDIT)
    harness.do(SendMessages(TOPIC, (event("1"),)))
    assert harness.deliveries() == []
    harness.commit()
    assert names(harness.deliveries()) == ["1"]


def test_copies_are_received_and_settled_each_by_itself(harness: NamespaceHarness) -> None:
    add_rule(harness, Rule("all", SqlFilter("1=1")))
    publish(harness, "1")
    (mine,) = harness.receive(path=AUDIT)
    assert harness.settle(Complete(), mine, path=AUDIT) == {}
    assert (contents(harness, AUDIT), contents(harness, BILLING)) == ([], ["1"])


def test_subscriptions_have_dead_letter_queues(harness: NamespaceHarness) -> None:
    publish(harness, "1")
    (mine,) = harness.receive(path=AUDIT)
    harness.settle(DeadLetter({"DeadLetterReason": "bad"}), mine, path=AUDIT)
    (row,) = harness.peek(path=AUDIT + "/$DeadLetterQueue")
    assert (row.message_id, row.dead_letter_source) == ("1", "Events/Subscriptions/Audit")


def test_a_ping_is_shown_to_nobody(harness: NamespaceHarness) -> None:
    publish(harness, event("ping")._replace(is_ping=True))
    assert contents(harness, AUDIT) == []


# --- scheduled messages ---


def test_a_scheduled_message_is_handed_on_when_it_wakes_by_the_rules_of_that_moment(harness: NamespaceHarness) -> None:
    assert publish(harness, event("1", due_at_ms=START_MS + 5_000)) == (1,)
    assert contents(harness, AUDIT) == []
    add_rule(harness, Rule("all", SqlFilter("1=1")))
    harness.pass_time(5_000)
    assert contents(harness, AUDIT) == contents(harness, BILLING) == ["1"]
    (row,) = harness.peek(path=AUDIT)
    assert (row.enqueued_at_ms, row.enqueue_sequence) == (START_MS + 5_000, 2)


def test_a_scheduled_message_survives_a_restart_and_can_be_cancelled(harness: NamespaceHarness) -> None:
    first, second = publish(harness, event("1", due_at_ms=START_MS + 5_000), event("2", due_at_ms=START_MS + 5_000))
    harness.restart()
    accept(harness, CancelScheduled(TOPIC, (first,)))
    assert isinstance(harness.refusal(CancelScheduled(TOPIC, (first,))), MessageNotFound)
    harness.pass_time(5_000)
    assert contents(harness, AUDIT) == ["2"]
    assert second == 2


# --- times and sizes ---


def test_the_shortest_time_to_live_counts(harness: NamespaceHarness) -> None:
    accept(harness, UpdateTopic(TOPIC, TopicSettings(default_ttl_ms=60_000)))
    accept(harness, CreateSubscription(TOPIC, "short", QueueSettings(default_ttl_ms=10_000)))
    publish(harness, event("own", ttl_ms=5_000), event("long", ttl_ms=90_000), event("none"))
    ends = {
        path: [row.expires_at_ms for row in harness.peek(path=path)] for path in (AUDIT, "events/subscriptions/short")
    }
    assert ends == {
        AUDIT: [START_MS + 5_000, START_MS + 60_000, START_MS + 60_000],
        "events/subscriptions/short": [START_MS + 5_000, START_MS + 10_000, START_MS + 10_000],
    }


def test_a_full_subscription_refuses_the_whole_send(harness: NamespaceHarness) -> None:
    accept(harness, UpdateTopic(TOPIC, TopicSettings(max_size_mb=1)))
    add_rule(harness, Rule("large", CorrelationFilter(label="large")))
    for number in range(4):
        publish(harness, event(f"{number}", label="large", body=bytes(250_000)))
    before = (contents(harness, AUDIT), contents(harness, BILLING))
    full = SendMessages(TOPIC, (event("small"), event("large", label="large", body=bytes(250_000))))
    assert isinstance(harness.refusal(full), QuotaExceeded)
    assert (contents(harness, AUDIT), contents(harness, BILLING)) == before


def test_a_topic_takes_no_larger_messages_than_it_says(harness: NamespaceHarness) -> None:
    accept(harness, UpdateTopic(TOPIC, TopicSettings(max_message_kb=1)))
    assert isinstance(harness.refusal(SendMessages(TOPIC, (event("1", body=bytes(2_000)),))), MessageTooLarge)


# --- filters that fail ---


@pytest.mark.parametrize("dead_letters", [True, False])
def test_a_filter_that_cannot_be_evaluated_dead_letters_the_message_if_asked_to(
    harness: NamespaceHarness, dead_letters: bool
) -> None:
    accept(harness, UpdateSubscription(TOPIC, "billing", QueueSettings(dead_letter_on_filter_errors=dead_letters)))
    add_rule(harness, Rule("odd", SqlFilter("colour + 1 > 3")))
    publish(harness, event("1", colour=True))
    assert contents(harness, AUDIT) == ["1"]
    assert contents(harness, BILLING) == []
    dead = harness.peek(path=BILLING + "/$deadletterqueue")
    assert names(dead) == (["1"] if dead_letters else [])
    for row in dead:
        assert properties_of(row)["DeadLetterReason"] == "FilterEvaluationException"
        assert "odd" in str(properties_of(row)["DeadLetterErrorDescription"])


def test_properties_that_cannot_be_read_are_a_filter_error_and_stop_nobody_else(harness: NamespaceHarness) -> None:
    broken = b"\x00\x53\x74\xd1\x00\x00\x00\x06\x00\x00\x00\x02\xa1\xff"  # a map with a key that goes on for ever
    payload = sections.encode_message(properties={PropertyField.MESSAGE_ID: "1"}) + broken
    add_rule(harness, Rule("red", CorrelationFilter(properties=(("colour", TypedValue("string", "red")),))))
    publish(harness, Arrival(payload, "1", None, None, None))
    assert contents(harness, AUDIT) == ["1"]
    assert contents(harness, BILLING + "/$deadletterqueue") == ["1"]


# --- rules ---


def test_rules_are_shown_changed_and_removed(harness: NamespaceHarness) -> None:
    add_rule(harness, Rule("Paid", CorrelationFilter(label="paid")))
    found = harness.ask(ListRules(BILLING, 0, 10))
    assert isinstance(found, RulesFound)
    assert [rule.name for rule in found.rules] == ["nothing", "Paid"]
    harness.pass_time(10)
    accept(harness, UpdateRule(BILLING, Rule("PAID", CorrelationFilter(label="sent"))))
    rule = harness.ask(GetRule(BILLING, "paid"))
    assert rule == Rule("Paid", CorrelationFilter(label="sent"), None, START_MS)
    publish(harness, event("1", label="paid"), event("2", label="sent"))
    assert contents(harness, BILLING) == ["2"]
    accept(harness, DeleteRule(BILLING, "pAID"))
    publish(harness, event("3", label="sent"))
    assert contents(harness, BILLING) == ["2"]
    for command in (
        GetRule(BILLING, "paid"),
        DeleteRule(BILLING, "paid"),
        UpdateRule(BILLING, Rule("paid")),
    ):
        assert isinstance(harness.refusal(command), EntityNotFound)


def test_a_new_subscription_has_a_rule_that_takes_everything(harness: NamespaceHarness) -> None:
    found = harness.ask(ListRules(AUDIT, 0, 10))
    assert isinstance(found, RulesFound)
    assert found.rules == (Rule("$Default", created_at_ms=START_MS),)


@pytest.mark.parametrize(
    "rule",
    [
        Rule("new", SqlFilter("colour =")),
        Rule("new", SqlFilter("a = 1 OR " * 200 + "a = 1")),
        Rule("new", SqlFilter("1=1"), SqlAction("colour = 'red'")),
        Rule("new", CorrelationFilter()),
        Rule("a/b"),
        Rule(""),
        Rule("n" * 51),
    ],
    ids=lambda rule: rule.name[:5] + str(rule.filter)[:30],
)
def test_a_rule_that_is_wrong_is_refused_and_nothing_is_made_or_changed(harness: NamespaceHarness, rule: Rule) -> None:
    add_rule(harness, Rule("there", CorrelationFilter(label="paid")))
    assert isinstance(harness.refusal(CreateRule(BILLING, rule)), ArgumentError | NotAllowed)
    if rule.name == "new":
        assert isinstance(harness.refusal(UpdateRule(BILLING, rule._replace(name="there"))), ArgumentError)
    command = CreateSubscription(TOPIC, "third", QueueSettings(), rule)
    assert isinstance(harness.refusal(command), ArgumentError | NotAllowed)
    assert isinstance(harness.refusal(GetEntity("events/subscriptions/third")), EntityNotFound)
    harness.restart()
    publish(harness, event("1", label="paid"))
    assert contents(harness, BILLING) == ["1"]


def test_a_name_is_taken_once(harness: NamespaceHarness) -> None:
    for command in (
        CreateTopic("EVENTS", TopicSettings()),
        CreateQueue("events", QueueSettings()),
        CreateTopic("Orders", TopicSettings()),
        CreateSubscription("events", "AUDIT", QueueSettings()),
        CreateRule(AUDIT, Rule("$default")),
    ):
        assert isinstance(harness.refusal(command), EntityAlreadyExists)


def test_there_are_bounds_to_subscriptions_and_rules(
    harness: NamespaceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SUBSCRIPTIONS_MAX", "SQL_FILTERS_MAX", "CORRELATION_FILTERS_MAX"):
        monkeypatch.setattr(registry, name, 2)
    assert isinstance(harness.refusal(CreateSubscription(TOPIC, "third", QueueSettings())), QuotaExceeded)
    assert isinstance(harness.refusal(CreateRule(AUDIT, Rule("third", SqlFilter("1=1")))), QuotaExceeded)
    add_rule(harness, Rule("a", CorrelationFilter(label="a")))
    add_rule(harness, Rule("b", CorrelationFilter(label="b")))
    assert isinstance(harness.refusal(CreateRule(AUDIT, Rule("c", CorrelationFilter(label="c")))), QuotaExceeded)


def test_there_is_a_bound_to_actions(harness: NamespaceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ACTIONS_MAX", 1)
    plain, changing = Rule("b", SqlFilter("1=1")), Rule("a", SqlFilter("1=1"), SqlAction("SET a = 1"))
    add_rule(harness, changing)
    add_rule(harness, plain)
    assert isinstance(harness.refusal(CreateRule(AUDIT, changing._replace(name="c"))), QuotaExceeded)
    assert isinstance(harness.refusal(UpdateRule(BILLING, changing._replace(name="b"))), QuotaExceeded)
    accept(harness, UpdateRule(BILLING, changing))
    accept(harness, DeleteRule(BILLING, "a"))
    accept(harness, UpdateRule(BILLING, changing._replace(name="b")))


def test_a_rule_that_becomes_one_of_another_kind_counts_there(
    harness: NamespaceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "CORRELATION_FILTERS_MAX", 1)
    add_rule(harness, Rule("a", CorrelationFilter(label="a")))
    add_rule(harness, Rule("b", SqlFilter("1=1")))
    assert isinstance(harness.refusal(UpdateRule(BILLING, Rule("b", CorrelationFilter(label="b")))), QuotaExceeded)
    accept(harness, UpdateRule(BILLING, Rule("a", CorrelationFilter(label="c"))))


# --- entities ---


def test_topics_and_subscriptions_are_described_and_listed(harness: NamespaceHarness) -> None:
    accept(harness, CreateTopic("alerts", TopicSettings()))
    publish(harness, "1", event("later", due_at_ms=START_MS + 1_000))
    topic = harness.ask(GetEntity("events"))
    assert isinstance(topic, TopicDescription)
    assert topic.path == TOPIC
    assert (topic.subscriptions, topic.scheduled, topic.sql_filters) == (2, 1, 2)
    topics = harness.ask(ListTopics(0, 10))
    assert isinstance(topics, EntitiesFound)
    assert [each.path for each in topics.entities] == ["alerts", "Events"]
    subscription = harness.ask(GetEntity(AUDIT))
    assert isinstance(subscription, SubscriptionDescription)
    assert (subscription.name, subscription.queue.active) == ("Audit", 1)
    page = harness.ask(ListSubscriptions(TOPIC, 1, 1))
    assert isinstance(page, EntitiesFound)
    assert ([each.name for each in page.entities], page.has_more) == (["billing"], False)


def test_a_topic_goes_with_all_that_belongs_to_it(harness: NamespaceHarness) -> None:
    publish(harness, "1", event("later", due_at_ms=START_MS + 1_000))
    harness.open(7, credit=0, path=AUDIT)
    harness.take()
    accept(harness, DeleteEntity(TOPIC))
    assert [reply.receiver for reply in harness.replies if isinstance(reply, ReceiverLost)] == [7]
    for path in (TOPIC, AUDIT, AUDIT + "/$deadletterqueue", BILLING):
        assert isinstance(harness.refusal(PeekMessages(path, 0, 1)), EntityNotFound)
    assert harness.store.load().entities == tuple(harness.store.load().entities[:2])
    harness.restart()
    harness.pass_time(10_000)
    accept(harness, CreateTopic(TOPIC, TopicSettings()))


def test_a_subscription_that_is_made_again_is_empty(harness: NamespaceHarness) -> None:
    publish(harness, "1")
    accept(harness, DeleteEntity(AUDIT))
    accept(harness, CreateSubscription(TOPIC, "audit", QueueSettings()))
    assert contents(harness, AUDIT) == []
    publish(harness, "2")
    assert contents(harness, AUDIT) == ["2"]


def test_everything_is_there_after_a_restart(harness: NamespaceHarness) -> None:
    add_rule(
        harness, Rule("typed", CorrelationFilter(properties=(("n", TypedValue("long", 5)),)), SqlAction("SET x = 1"))
    )
    add_rule(harness, Rule("sql", SqlFilter("sys.Label = @x", (("@x", TypedValue("string", "paid")),))))
    publish(harness, event("1", n=5), event("2"))
    harness.restart()
    assert publish(harness, event("3", n=5), event("4", label="paid")) == (3, 4)
    assert contents(harness, AUDIT) == ["1", "2", "3", "4"]
    assert contents(harness, BILLING) == ["1", "3", "4"]


def test_sends_that_were_not_committed_are_nowhere_after_a_crash(harness: NamespaceHarness) -> None:
    add_rule(harness, Rule("all", SqlFilter("1=1")))
    publish(harness, "1")
    harness.do(SendMessages(TOPIC, (event("2"),)))
    harness.restart()
    assert contents(harness, AUDIT) == contents(harness, BILLING) == ["1"]


# --- what cannot be ---


def test_a_topic_is_sent_to_and_a_subscription_received_from(harness: NamespaceHarness) -> None:
    for command in (
        OpenReceiver(1, TOPIC, ReceiveMode.PEEK_LOCK),
        PeekMessages(TOPIC, 0, 1),
        OpenSender(AUDIT),
        SendMessages(AUDIT, (event("1"),)),
        SendMessages(AUDIT + "/$deadletterqueue", (event("1"),)),
        DeleteEntity(AUDIT + "/$deadletterqueue"),
    ):
        assert isinstance(harness.refusal(command), NotAllowed)


def test_a_topic_that_is_closed_takes_nothing_and_its_subscriptions_give(harness: NamespaceHarness) -> None:
    publish(harness, "1")
    accept(harness, UpdateTopic(TOPIC, TopicSettings(status=QueueStatus.SEND_DISABLED)))
    assert isinstance(harness.refusal(SendMessages(TOPIC, (event("2"),))), EntityDisabled)
    assert names(harness.receive(path=AUDIT)) == ["1"]


def test_a_subscription_that_is_closed_goes_on_collecting(harness: NamespaceHarness) -> None:
    accept(harness, UpdateSubscription(TOPIC, "audit", QueueSettings(status=QueueStatus.DISABLED)))
    publish(harness, "1")
    assert isinstance(harness.refusal(OpenReceiver(1, AUDIT, ReceiveMode.PEEK_LOCK)), EntityDisabled)
    accept(harness, UpdateSubscription(TOPIC, "audit", QueueSettings()))
    assert names(harness.receive(path=AUDIT)) == ["1"]


def test_what_belongs_to_a_topic_needs_one(harness: NamespaceHarness) -> None:
    for command in (
        CreateSubscription("nowhere", "s", QueueSettings()),
        CreateSubscription("orders", "s", QueueSettings()),
        UpdateSubscription(TOPIC, "nobody", QueueSettings()),
        ListSubscriptions("orders", 0, 1),
        CreateRule("orders", Rule("r")),
        UpdateTopic("orders", TopicSettings()),
    ):
        assert isinstance(harness.refusal(command), EntityNotFound)


@pytest.mark.parametrize("path", ["a/subscriptions/b", "a/Subscriptions", "", "/a", "a//b", "a/..", "sp ace"])
def test_a_name_that_would_lead_elsewhere_is_refused(harness: NamespaceHarness, path: str) -> None:
    assert isinstance(harness.refusal(CreateTopic(path, TopicSettings())), NotAllowed)
    assert isinstance(harness.refusal(CreateQueue(path, QueueSettings())), NotAllowed)


@pytest.mark.parametrize("name", ["$management", "$DeadLetterQueue", "a/b", "", "..", "sp ace", 51 * "a"])
def test_a_subscription_whose_name_would_lead_elsewhere_is_refused(harness: NamespaceHarness, name: str) -> None:
    assert isinstance(harness.refusal(CreateSubscription(TOPIC, name, QueueSettings())), NotAllowed)
