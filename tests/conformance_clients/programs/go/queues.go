package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

var short = &admin.QueueProperties{LockDuration: ptr("PT5S")}

var deleting = &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}

var queueChecks = []check{
	{"send-single", func(t *test) string {
		queue := t.queue(nil)
		t.send(queue, text("one"))
		message := t.receive(t.receiver(queue, nil), 1)[0]
		t.same(string(message.Body), "one", "body")
		return fmt.Sprintf("sequence number %d", *message.SequenceNumber)
	}},
	{"send-batch", func(t *test) string {
		queue := t.queue(nil)
		sender := t.sender(queue)
		batch, err := sender.NewMessageBatch(t.ctx, nil)
		t.ok(err)
		for err == nil {
			err = batch.AddMessage(text(strings.Repeat("x", 30_000)), nil)
		}
		t.must(errors.Is(err, azservicebus.ErrMessageTooLarge), "%v", err)
		t.must(batch.NumMessages() >= 7, "a batch took %d messages only", batch.NumMessages())
		t.ok(sender.SendMessageBatch(t.ctx, batch, nil))
		t.receive(t.receiver(queue, deleting), int(batch.NumMessages()))
		return fmt.Sprintf("%d messages, %d bytes", batch.NumMessages(), batch.NumBytes())
	}},
	{"send-large", func(t *test) string {
		queue := t.queue(nil)
		body := bytes.Repeat([]byte{7}, 255*1024)
		t.send(queue, &azservicebus.Message{Body: body})
		t.must(bytes.Equal(t.receive(t.receiver(queue, nil), 1)[0].Body, body), "the body came back changed")
		return fmt.Sprintf("%d bytes", len(body))
	}},
	{"send-too-large", func(t *test) string {
		err := t.sender(t.queue(nil)).SendMessage(t.ctx, &azservicebus.Message{Body: make([]byte, 300*1024)}, nil)
		t.must(errors.Is(err, azservicebus.ErrMessageTooLarge), "%v", err)
		return "ErrMessageTooLarge"
	}},
	{"schedule", func(t *test) string {
		queue := t.queue(nil)
		due := time.Now().Add(4 * time.Second)
		numbers, err := t.sender(queue).ScheduleMessages(t.ctx, []*azservicebus.Message{text("later")}, due, nil)
		t.ok(err)
		receiver := t.receiver(queue, nil)
		seen, err := receiver.PeekMessages(t.ctx, 1, nil)
		t.ok(err)
		t.same(seen[0].State, azservicebus.MessageStateScheduled, "state")
		t.nothing(receiver)
		t.receive(receiver, 1)
		late := time.Since(due).Milliseconds()
		t.must(late >= -500, "it came %d ms early", -late)
		return fmt.Sprintf("number %d, came %d ms after its time", numbers[0], late)
	}},
	{"schedule-by-property", func(t *test) string {
		queue := t.queue(nil)
		t.send(queue, &azservicebus.Message{Body: []byte("later"), ScheduledEnqueueTime: ptr(time.Now().Add(3 * time.Second))})
		receiver := t.receiver(queue, nil)
		t.nothing(receiver)
		t.receive(receiver, 1)
		return "came when it was due"
	}},
	{"cancel-scheduled", func(t *test) string {
		queue := t.queue(nil)
		sender := t.sender(queue)
		messages := []*azservicebus.Message{text("1"), text("2")}
		numbers, err := sender.ScheduleMessages(t.ctx, messages, time.Now().Add(4*time.Second), nil)
		t.ok(err)
		t.ok(sender.CancelScheduledMessages(t.ctx, numbers[:1], nil))
		receiver := t.receiver(queue, nil)
		t.same(bodies(t.receive(receiver, 1)), []string{"2"}, "bodies")
		t.nothing(receiver)
		return fmt.Sprintf("cancelled %d of %d", numbers[0], len(numbers))
	}},
	{"properties", func(t *test) string {
		queue := t.queue(nil)
		when := time.UnixMilli(1_700_000_000_000).UTC()
		given := &azservicebus.Message{
			Body: []byte("body"), MessageID: ptr("id-1"), ContentType: ptr("text/plain"), CorrelationID: ptr("c-1"),
			PartitionKey: ptr("p"), Subject: ptr("s"), To: ptr("t"), ReplyTo: ptr("r"), ReplyToSessionID: ptr("rs"),
			TimeToLive: ptr(10 * time.Minute),
			ApplicationProperties: map[string]any{
				"text": "ä", "whole": int64(7), "fraction": 1.5, "truth": true, "none": nil, "when": when, "bytes": []byte("b"),
				"small": int32(3), "unsigned": uint64(9),
			},
		}
		t.send(queue, given)
		found := t.receive(t.receiver(queue, nil), 1)[0]
		back := found.Message()
		back.Body = found.Body
		t.same(back.ApplicationProperties["when"].(time.Time).UTC(), when, "time")
		back.ApplicationProperties["when"] = when
		t.same(back, given, "message")
		t.must(found.EnqueuedTime != nil && found.ExpiresAt != nil && found.LockedUntil != nil, "times")
		t.same(found.DeliveryCount, uint32(1), "delivery count")
		return "all properties, and nine types of application properties"
	}},
	{"annotated-message", func(t *test) string {
		queue := t.queue(nil)
		sender := t.sender(queue)
		for _, body := range []azservicebus.AMQPAnnotatedMessageBody{
			{Value: "value"}, {Sequence: [][]any{{int64(1), "two"}, {true}}}, {Data: [][]byte{[]byte("a"), []byte("b")}},
		} {
			message := &azservicebus.AMQPAnnotatedMessage{
				Body: body, MessageAnnotations: map[any]any{"mine": "m"}, DeliveryAnnotations: map[any]any{"theirs": "d"},
				Footer: map[any]any{"foot": "f"}, Header: &azservicebus.AMQPAnnotatedMessageHeader{Priority: 7},
			}
			t.ok(sender.SendAMQPAnnotatedMessage(t.ctx, message, nil))
		}
		found := t.receive(t.receiver(queue, nil), 3)
		t.same(found[0].RawAMQPMessage.Body.Value, "value", "value")
		t.same(found[1].RawAMQPMessage.Body.Sequence, [][]any{{int64(1), "two"}, {true}}, "sequence")
		t.same(found[2].RawAMQPMessage.Body.Data, [][]byte{[]byte("a"), []byte("b")}, "data")
		raw := found[0].RawAMQPMessage
		t.same([]any{raw.MessageAnnotations["mine"], raw.Footer["foot"], raw.Header.Priority}, []any{"m", "f", uint8(7)}, "sections")
		return "value, sequence and data; annotations, footer and header"
	}},
	{"duplicates", func(t *test) string {
		queue := t.queue(&admin.QueueProperties{RequiresDuplicateDetection: ptr(true)})
		for n, id := range []string{"same", "same", "other"} {
			t.send(queue, &azservicebus.Message{Body: []byte(fmt.Sprint(n)), MessageID: &id})
		}
		t.same(bodies(t.receive(t.receiver(queue, nil), 2)), []string{"0", "2"}, "bodies")
		return "the second with the same id was dropped"
	}},
	{"complete", func(t *test) string {
		queue := t.queue(short)
		t.send(queue, text("1"))
		receiver := t.receiver(queue, nil)
		t.ok(receiver.CompleteMessage(t.ctx, t.receive(receiver, 1)[0], nil))
		time.Sleep(5500 * time.Millisecond)
		t.nothing(receiver)
		return "gone for good"
	}},
	{"abandon", func(t *test) string {
		queue := t.queue(nil)
		t.send(queue, &azservicebus.Message{ApplicationProperties: map[string]any{"kept": "k"}})
		receiver := t.receiver(queue, nil)
		options := &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"added": "a"}}
		t.ok(receiver.AbandonMessage(t.ctx, t.receive(receiver, 1)[0], options))
		again := t.receive(receiver, 1)[0]
		t.same(again.DeliveryCount, uint32(2), "delivery count, which begins with 1 in Go")
		t.same(again.ApplicationProperties, map[string]any{"kept": "k", "added": "a"}, "application properties")
		return "came again, with the added property"
	}},
	{"dead-letter", func(t *test) string {
		queue := t.queue(nil)
		t.send(queue, text("1"))
		receiver := t.receiver(queue, nil)
		t.ok(receiver.DeadLetterMessage(t.ctx, t.receive(receiver, 1)[0], &azservicebus.DeadLetterOptions{
			Reason: ptr("why"), ErrorDescription: ptr("long"), PropertiesToModify: map[string]any{"more": "m"},
		}))
		dead := t.receive(t.deadLetters(queue), 1)[0]
		t.same([]string{*dead.DeadLetterReason, *dead.DeadLetterErrorDescription}, []string{"why", "long"}, "reason")
		t.same(dead.ApplicationProperties["more"], "m", "added property")
		return "with reason, description and an added property"
	}},
	{"defer", func(t *test) string {
		queue := t.queue(nil)
		t.send(queue, text("1"))
		receiver := t.receiver(queue, nil)
		message := t.receive(receiver, 1)[0]
		options := &azservicebus.DeferMessageOptions{PropertiesToModify: map[string]any{"added": "a"}}
		t.ok(receiver.DeferMessage(t.ctx, message, options))
		t.nothing(receiver)
		deferred, err := receiver.ReceiveDeferredMessages(t.ctx, []int64{*message.SequenceNumber}, nil)
		t.ok(err)
		t.same(deferred[0].State, azservicebus.MessageStateDeferred, "state")
		t.same(deferred[0].ApplicationProperties["added"], "a", "added property")
		t.ok(receiver.CompleteMessage(t.ctx, deferred[0], nil))
		left, err := receiver.PeekMessages(t.ctx, 1, nil)
		t.ok(err)
		t.same(len(left), 0, "messages left")
		return fmt.Sprintf("by sequence number %d", *message.SequenceNumber)
	}},
	{"receive-and-delete", func(t *test) string {
		queue := t.queue(short)
		t.send(queue, text("1"), text("2"))
		receiver := t.receiver(queue, deleting)
		t.receive(receiver, 2)
		left, err := receiver.PeekMessages(t.ctx, 1, nil)
		t.ok(err)
		t.same(len(left), 0, "messages left")
		return "2 messages, none left"
	}},
	{"renew-lock", func(t *test) string {
		queue := t.queue(short)
		t.send(queue, text("1"))
		receiver := t.receiver(queue, nil)
		message := t.receive(receiver, 1)[0]
		first := *message.LockedUntil
		time.Sleep(3 * time.Second)
		t.ok(receiver.RenewMessageLock(t.ctx, message, nil))
		longer := message.LockedUntil.Sub(first)
		t.must(longer > 0, "the lock does not end later")
		time.Sleep(3500 * time.Millisecond)
		t.ok(receiver.CompleteMessage(t.ctx, message, nil))
		return fmt.Sprintf("%v longer, completed after the first lock's end", longer)
	}},
	{"lock-lost", func(t *test) string {
		queue := t.queue(short)
		t.send(queue, text("1"))
		receiver := t.receiver(queue, nil)
		message := t.receive(receiver, 1)[0]
		time.Sleep(6 * time.Second)
		code := t.refused(receiver.CompleteMessage(t.ctx, message, nil), string(azservicebus.CodeLockLost))
		t.same(t.receive(receiver, 1)[0].DeliveryCount, uint32(2), "delivery count")
		return code
	}},
	{"settle-by-another-receiver", func(t *test) string {
		queue := t.queue(nil)
		t.send(queue, text("1"))
		first := t.receiver(queue, nil)
		message := t.receive(first, 1)[0]
		t.ok(first.Close(t.ctx))
		other := t.receiver(queue, nil)
		t.ok(other.CompleteMessage(t.ctx, message, nil))
		left, err := other.PeekMessages(t.ctx, 1, nil)
		t.ok(err)
		t.same(len(left), 0, "messages left")
		return "completed by its lock token after its receiver was closed"
	}},
	{"delivery-limit", func(t *test) string {
		queue := t.queue(&admin.QueueProperties{MaxDeliveryCount: ptr(int32(2))})
		t.send(queue, text("1"))
		receiver := t.receiver(queue, nil)
		for range 2 {
			t.ok(receiver.AbandonMessage(t.ctx, t.receive(receiver, 1)[0], nil))
		}
		dead := t.receive(t.deadLetters(queue), 1)[0]
		t.same(*dead.DeadLetterReason, "MaxDeliveryCountExceeded", "reason")
		return *dead.DeadLetterReason
	}},
	{"expiry", func(t *test) string {
		queue := t.queue(&admin.QueueProperties{DeadLetteringOnMessageExpiration: ptr(true)})
		t.send(queue, &azservicebus.Message{TimeToLive: ptr(time.Second)})
		time.Sleep(1500 * time.Millisecond)
		t.nothing(t.receiver(queue, nil))
		dead := t.receive(t.deadLetters(queue), 1)[0]
		t.same(*dead.DeadLetterReason, "TTLExpiredException", "reason")
		return *dead.DeadLetterReason
	}},
	{"peek", func(t *test) string {
		queue := t.queue(nil)
		t.send(queue, text("1"), text("2"), text("3"), text("4"))
		receiver := t.receiver(queue, nil)
		first, err := receiver.PeekMessages(t.ctx, 2, nil)
		t.ok(err)
		next, err := receiver.PeekMessages(t.ctx, 1, nil)
		t.ok(err)
		t.same(bodies(append(first, next...)), []string{"1", "2", "3"}, "bodies")
		from := &azservicebus.PeekMessagesOptions{FromSequenceNumber: first[1].SequenceNumber}
		again, err := receiver.PeekMessages(t.ctx, 10, from)
		t.ok(err)
		t.same(bodies(again), []string{"2", "3", "4"}, "from a sequence number")
		t.receive(receiver, 4)
		return "peeked on and from a number, all still there"
	}},
	{"forward", func(t *test) string {
		target := t.queue(nil)
		t.send(t.queue(&admin.QueueProperties{ForwardTo: &target}), text("1"))
		message := t.receive(t.receiver(target, nil), 1)[0]
		return fmt.Sprintf("came to the target with number %d", *message.SequenceNumber)
	}},
	{"custom-endpoint", func(t *test) string {
		queue := t.queue(nil)
		host := strings.Split(strings.Split(bus, "Endpoint=sb://")[1], ";")[0]
		host = strings.TrimSuffix(host, "/")
		elsewhere := strings.Replace(bus, host, "contoso.servicebus.windows.net", 1)
		elsewhere = strings.Replace(elsewhere, "UseDevelopmentEmulator=true", "", 1)
		certified := &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12}
		other := t.otherClient(elsewhere, &azservicebus.ClientOptions{CustomEndpoint: host, TLSConfig: certified})
		sender, err := other.NewSender(queue, nil)
		t.ok(err)
		t.ok(sender.SendMessage(t.ctx, text("1"), nil))
		t.receive(t.receiver(queue, nil), 1)
		return "over TLS, with the name of another host"
	}},
}
