package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func (t *test) rules(topic string) []string {
	var found []string
	for pager := manager.NewListRulesPager(topic, "s", nil); pager.More(); {
		page, err := pager.NextPage(t.ctx)
		t.ok(err)
		for _, each := range page.Rules {
			found = append(found, each.Name)
		}
	}
	return sorted(found)
}

// queues returns all names, and how many there were on the longest page.
func (t *test) queues(pageSize int32) ([]string, int) {
	var found []string
	longestPage := 0
	for pager := manager.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: pageSize}); pager.More(); {
		page, err := pager.NextPage(t.ctx)
		t.ok(err)
		longestPage = max(longestPage, len(page.Queues))
		for _, each := range page.Queues {
			found = append(found, each.QueueName)
		}
	}
	return found, longestPage
}

var administrationChecks = []check{
	{"admin-queue", func(t *test) string {
		given := admin.QueueProperties{
			LockDuration: ptr("PT45S"), MaxSizeInMegabytes: ptr(int32(2048)), RequiresDuplicateDetection: ptr(true),
			RequiresSession: ptr(false), DefaultMessageTimeToLive: ptr("P2D"), DeadLetteringOnMessageExpiration: ptr(true),
			DuplicateDetectionHistoryTimeWindow: ptr("PT5M"), MaxDeliveryCount: ptr(int32(7)),
			EnableBatchedOperations: ptr(false), UserMetadata: ptr("notes"), AutoDeleteOnIdle: ptr("PT1H"),
			EnablePartitioning: ptr(false), Status: ptr(admin.EntityStatusActive),
		}
		name := t.queue(&given)
		found, err := manager.GetQueue(t.ctx, name, nil)
		t.ok(err)
		properties := found.QueueProperties
		properties.MaxMessageSizeInKilobytes = nil
		if len(properties.AuthorizationRules) == 0 {
			properties.AuthorizationRules = nil
		}
		t.same(properties, given, "properties")
		found.MaxDeliveryCount = ptr(int32(9))
		updated, err := manager.UpdateQueue(t.ctx, name, found.QueueProperties, nil)
		t.ok(err)
		t.same(*updated.MaxDeliveryCount, int32(9), "after the update")
		names, _ := t.queues(100)
		t.must(contains(names, name), "it is not listed")
		_, err = manager.DeleteQueue(t.ctx, name, nil)
		t.ok(err)
		gone, err := manager.GetQueue(t.ctx, name, nil)
		t.ok(err)
		t.must(gone == nil, "it is still there")
		return "13 settings, updated, listed, deleted"
	}},
	{"admin-topic", func(t *test) string {
		given := &admin.TopicProperties{
			DefaultMessageTimeToLive: ptr("P3D"), MaxSizeInMegabytes: ptr(int32(3072)), UserMetadata: ptr("notes"),
			EnableBatchedOperations: ptr(true), SupportOrdering: ptr(true),
		}
		name := t.topic()
		_, err := manager.DeleteTopic(t.ctx, name, nil)
		t.ok(err)
		_, err = manager.CreateTopic(t.ctx, name, &admin.CreateTopicOptions{Properties: given})
		t.ok(err)
		found, err := manager.GetTopic(t.ctx, name, nil)
		t.ok(err)
		t.same(*found.DefaultMessageTimeToLive, "P3D", "time to live")
		t.same(*found.MaxSizeInMegabytes, int32(3072), "size")
		t.same(*found.SupportOrdering, true, "ordering")
		found.UserMetadata = ptr("new")
		updated, err := manager.UpdateTopic(t.ctx, name, found.TopicProperties, nil)
		t.ok(err)
		t.same(*updated.UserMetadata, "new", "metadata")
		counts, err := manager.GetTopicRuntimeProperties(t.ctx, name, nil)
		t.ok(err)
		t.same(counts.SubscriptionCount, int32(0), "subscriptions")
		return "5 settings, updated, counted"
	}},
	{"admin-subscription", func(t *test) string {
		topic := t.topic()
		t.subscription(topic, "s", &admin.SubscriptionProperties{
			LockDuration: ptr("PT25S"), RequiresSession: ptr(true), DefaultMessageTimeToLive: ptr("P1D"),
			DeadLetteringOnMessageExpiration: ptr(true), MaxDeliveryCount: ptr(int32(4)), UserMetadata: ptr("notes"),
			EnableDeadLetteringOnFilterEvaluationExceptions: ptr(false),
		})
		found, err := manager.GetSubscription(t.ctx, topic, "s", nil)
		t.ok(err)
		t.same([]any{*found.LockDuration, *found.RequiresSession, *found.DefaultMessageTimeToLive, *found.MaxDeliveryCount},
			[]any{"PT25S", true, "P1D", int32(4)}, "properties")
		found.MaxDeliveryCount = ptr(int32(5))
		updated, err := manager.UpdateSubscription(t.ctx, topic, "s", found.SubscriptionProperties, nil)
		t.ok(err)
		t.same(*updated.MaxDeliveryCount, int32(5), "after the update")
		t.send(topic, in("x", "1"))
		counts, err := manager.GetSubscriptionRuntimeProperties(t.ctx, topic, "s", nil)
		t.ok(err)
		t.same(counts.ActiveMessageCount, int32(1), "messages")
		_, err = manager.DeleteSubscription(t.ctx, topic, "s", nil)
		t.ok(err)
		gone, err := manager.GetSubscription(t.ctx, topic, "s", nil)
		t.ok(err)
		t.must(gone == nil, "it is still there")
		return "7 settings, updated, counted, deleted"
	}},
	{"admin-rules", func(t *test) string {
		topic := t.topic()
		t.subscription(topic, "s", nil)
		t.same(t.rules(topic), []string{"$Default"}, "rules of a new subscription")
		when := time.UnixMilli(1_700_000_000_000).UTC()
		for _, options := range []*admin.CreateRuleOptions{
			{Name: ptr("sql"), Filter: &admin.SQLFilter{Expression: "a = @a", Parameters: map[string]any{"@a": int64(1)}},
				Action: &admin.SQLAction{Expression: "SET b = @b", Parameters: map[string]any{"@b": "x"}}},
			{Name: ptr("correlation"), Filter: &admin.CorrelationFilter{Subject: ptr("s"), ApplicationProperties: map[string]any{
				"text": "t", "number": int64(2), "truth": true, "fraction": 1.5, "when": when,
			}}},
			{Name: ptr("true"), Filter: &admin.TrueFilter{}},
			{Name: ptr("false"), Filter: &admin.FalseFilter{}},
		} {
			_, err := manager.CreateRule(t.ctx, topic, "s", options)
			t.ok(err)
		}
		sql, err := manager.GetRule(t.ctx, topic, "s", "sql", nil)
		t.ok(err)
		t.same(sql.Filter, &admin.SQLFilter{Expression: "a = @a", Parameters: map[string]any{"@a": int64(1)}}, "filter")
		t.same(sql.Action, &admin.SQLAction{Expression: "SET b = @b", Parameters: map[string]any{"@b": "x"}}, "action")
		correlation, err := manager.GetRule(t.ctx, topic, "s", "correlation", nil)
		t.ok(err)
		properties := correlation.Filter.(*admin.CorrelationFilter).ApplicationProperties
		properties["when"] = properties["when"].(time.Time).UTC()
		t.same(properties, map[string]any{"text": "t", "number": int64(2), "truth": true, "fraction": 1.5, "when": when}, "properties")
		sql.Filter = &admin.SQLFilter{Expression: "c = 1"}
		updated, err := manager.UpdateRule(t.ctx, topic, "s", sql.RuleProperties)
		t.ok(err)
		t.same(updated.Filter.(*admin.SQLFilter).Expression, "c = 1", "after the update")
		_, err = manager.DeleteRule(t.ctx, topic, "s", "$Default", nil)
		t.ok(err)
		t.same(t.rules(topic), []string{"correlation", "false", "sql", "true"}, "after one was deleted")
		bad := &admin.CreateRuleOptions{Name: ptr("bad"), Filter: &admin.SQLFilter{Expression: "a = = 1"}}
		_, err = manager.CreateRule(t.ctx, topic, "s", bad)
		return "four kinds, created, read, updated, deleted; a wrong one refused with " + t.refused(err, "400")
	}},
	{"admin-counts", func(t *test) string {
		queue := t.queue(nil)
		t.send(queue, text("1"), text("2"), text("3"))
		_, err := t.sender(queue).ScheduleMessages(t.ctx, []*azservicebus.Message{text("4")}, time.Now().Add(time.Minute), nil)
		t.ok(err)
		receiver := t.receiver(queue, nil)
		t.ok(receiver.DeadLetterMessage(t.ctx, t.receive(receiver, 1)[0], nil))
		counts, err := manager.GetQueueRuntimeProperties(t.ctx, queue, nil)
		t.ok(err)
		t.same([]int32{counts.ActiveMessageCount, counts.DeadLetterMessageCount, counts.ScheduledMessageCount}, []int32{2, 1, 1}, "counts")
		t.must(counts.SizeInBytes > 0 && !counts.CreatedAt.IsZero(), "size and time")
		return fmt.Sprintf("2 active, 1 dead-lettered, 1 scheduled, %d bytes", counts.SizeInBytes)
	}},
	{"admin-namespace", func(t *test) string {
		found, err := manager.GetNamespaceProperties(t.ctx, nil)
		t.ok(err)
		t.must(found.Name != "" && !found.CreatedTime.IsZero(), "name and time")
		return found.Name + ", " + found.SKU
	}},
	{"admin-errors", func(t *test) string {
		queue := t.queue(nil)
		_, exists := manager.CreateQueue(t.ctx, queue, nil)
		_, missing := manager.DeleteTopic(t.ctx, "missing", nil)
		tooLong := &admin.CreateQueueOptions{Properties: &admin.QueueProperties{LockDuration: ptr("PT10M")}}
		_, wrong := manager.CreateQueue(t.ctx, queue+"-bad", tooLong)
		return strings.Join([]string{t.refused(exists, "409"), t.refused(missing, "404"), t.refused(wrong, "400")}, ", ")
	}},
	{"admin-pages", func(t *test) string {
		var names []string
		for range 7 {
			names = append(names, t.queue(nil))
		}
		found, longestPage := t.queues(3)
		t.must(longestPage <= 3, "%d on a page of 3", longestPage)
		for _, name := range names {
			t.must(contains(found, name), "%s is missing", name)
		}
		return "7 queues and more on pages of 3"
	}},
}
