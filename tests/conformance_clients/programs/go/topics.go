package main

import (
	"sort"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func with(body string, properties map[string]any) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), ApplicationProperties: properties}
}

func rule(filter admin.RuleFilter, action admin.RuleAction) *admin.SubscriptionProperties {
	return &admin.SubscriptionProperties{DefaultRule: &admin.RuleProperties{Name: "rule", Filter: filter, Action: action}}
}

// through returns the bodies of the messages that get through a filter.
func (t *test) through(filter admin.RuleFilter, messages ...*azservicebus.Message) []string {
	topic := t.topic()
	t.subscription(topic, "filtered", rule(filter, nil))
	t.subscription(topic, "all", nil)
	t.send(topic, messages...)
	t.receive(t.of(topic, "all"), len(messages))
	return bodies(t.whatComes(t.of(topic, "filtered"), len(messages), 2*time.Second))
}

var topicChecks = []check{
	{"filter-default", func(t *test) string {
		topic := t.topic()
		t.subscription(topic, "one", nil)
		t.subscription(topic, "two", nil)
		t.send(topic, text("1"))
		t.receive(t.of(topic, "one"), 1)
		t.receive(t.of(topic, "two"), 1)
		return "each subscription got a copy"
	}},
	{"filter-true-false", func(t *test) string {
		t.same(t.through(&admin.TrueFilter{}, text("1")), []string{"1"}, "with TrueFilter")
		t.same(t.through(&admin.FalseFilter{}, text("1")), []string{}, "with FalseFilter")
		return "all, and none"
	}},
	{"filter-sql", func(t *test) string {
		expression := "(amount > 100 AND kind IN ('a', 'b') AND name LIKE 'x%') OR sys.Label = 'always' OR EXISTS(urgent)"
		found := t.through(&admin.SQLFilter{Expression: expression},
			with("1", map[string]any{"amount": 200, "kind": "a", "name": "xy"}),
			with("2", map[string]any{"amount": 50, "kind": "a", "name": "xy"}),
			with("3", map[string]any{"amount": 200, "kind": "c", "name": "xy"}),
			&azservicebus.Message{Body: []byte("4"), Subject: ptr("always")},
			with("5", map[string]any{"urgent": true}),
			text("6"),
		)
		t.same(found, []string{"1", "4", "5"}, "bodies")
		return expression
	}},
	{"filter-sql-parameters", func(t *test) string {
		filter := &admin.SQLFilter{Expression: "amount > @least", Parameters: map[string]any{"@least": 10}}
		found := t.through(filter, with("1", map[string]any{"amount": 5}), with("2", map[string]any{"amount": 20}))
		t.same(found, []string{"2"}, "bodies")
		return filter.Expression
	}},
	{"filter-correlation", func(t *test) string {
		filter := &admin.CorrelationFilter{
			CorrelationID: ptr("c"), Subject: ptr("s"), ApplicationProperties: map[string]any{"colour": "red"},
		}
		fits := azservicebus.Message{
			Body: []byte("1"), CorrelationID: ptr("c"), Subject: ptr("s"), ApplicationProperties: map[string]any{"colour": "red", "more": 1},
		}
		other := fits
		other.Body, other.Subject = []byte("2"), ptr("t")
		plain := &azservicebus.Message{Body: []byte("3"), CorrelationID: ptr("c"), Subject: ptr("s")}
		t.same(t.through(filter, &fits, &other, plain), []string{"1"}, "bodies")
		system := &admin.CorrelationFilter{
			MessageID: ptr("m"), To: ptr("t"), ReplyTo: ptr("r"), SessionID: ptr("i"), ReplyToSessionID: ptr("ri"), ContentType: ptr("text/plain"),
		}
		fitting := &azservicebus.Message{
			Body: []byte("4"), MessageID: ptr("m"), To: ptr("t"), ReplyTo: ptr("r"), SessionID: ptr("i"), ReplyToSessionID: ptr("ri"),
			ContentType: ptr("text/plain"),
		}
		t.same(t.through(system, fitting, text("5")), []string{"4"}, "by system properties")
		return "by nine properties, all of which have to fit"
	}},
	{"action", func(t *test) string {
		action := &admin.SQLAction{Expression: "SET sys.Label = 'seen'; SET amount = amount * 2; SET added = 'a'; REMOVE kind"}
		topic := t.topic()
		t.subscription(topic, "changed", rule(&admin.TrueFilter{}, action))
		t.subscription(topic, "all", nil)
		message := with("1", map[string]any{"amount": int64(4), "kind": "k"})
		message.Subject = ptr("s")
		t.send(topic, message)
		changed := t.receive(t.of(topic, "changed"), 1)[0]
		t.same(*changed.Subject, "seen", "subject")
		expected := map[string]any{"amount": int64(8), "added": "a", "RuleName": "rule"}
		t.same(changed.ApplicationProperties, expected, "application properties")
		plain := t.receive(t.of(topic, "all"), 1)[0]
		t.same(plain.ApplicationProperties, map[string]any{"amount": int64(4), "kind": "k"}, "of the other subscription")
		return action.Expression
	}},
	{"several-rules", func(t *test) string {
		topic := t.topic()
		t.subscription(topic, "s", rule(&admin.SQLFilter{Expression: "a = 1"}, nil))
		other := &admin.CreateRuleOptions{Name: ptr("other"), Filter: &admin.SQLFilter{Expression: "b = 1"}}
		_, err := manager.CreateRule(t.ctx, topic, "s", other)
		t.ok(err)
		t.send(topic, with("both", map[string]any{"a": 1, "b": 1}), with("b", map[string]any{"b": 1}))
		t.same(bodies(t.receive(t.of(topic, "s"), 2)), []string{"both", "b"}, "bodies")
		return "one copy, though two rules fit"
	}},
	{"subscription-dead-letter", func(t *test) string {
		topic := t.topic()
		t.subscription(topic, "s", nil)
		t.send(topic, text("1"))
		receiver := t.of(topic, "s")
		options := &azservicebus.DeadLetterOptions{Reason: ptr("why")}
		t.ok(receiver.DeadLetterMessage(t.ctx, t.receive(receiver, 1)[0], options))
		letters, err := client.NewReceiverForSubscription(
			topic, "s", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
		t.ok(err)
		t.same(*t.receive(letters, 1)[0].DeadLetterReason, "why", "reason")
		t.nothing(receiver)
		return "with its reason"
	}},
	{"topic-schedule", func(t *test) string {
		topic := t.topic()
		t.subscription(topic, "s", nil)
		sender := t.sender(topic)
		messages := []*azservicebus.Message{text("1"), text("2")}
		numbers, err := sender.ScheduleMessages(t.ctx, messages, time.Now().Add(3*time.Second), nil)
		t.ok(err)
		t.ok(sender.CancelScheduledMessages(t.ctx, numbers[:1], nil))
		receiver := t.of(topic, "s")
		t.same(bodies(t.receive(receiver, 1)), []string{"2"}, "bodies")
		t.nothing(receiver)
		return "one came, one was cancelled"
	}},
}

func sorted(names []string) []string {
	sort.Strings(names)
	return names
}
