package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

var (
	withSessions      = &admin.QueueProperties{RequiresSession: ptr(true)}
	withShortSessions = &admin.QueueProperties{RequiresSession: ptr(true), LockDuration: ptr("PT5S")}
)

func in(session, body string) *azservicebus.Message {
	return &azservicebus.Message{Body: []byte(body), SessionID: &session}
}

func (t *test) accept(queue, session string) *azservicebus.SessionReceiver {
	receiver, err := client.AcceptSessionForQueue(t.ctx, queue, session, nil)
	t.ok(err)
	return receiver
}

var sessionChecks = []check{
	{"session-accept", func(t *test) string {
		queue := t.queue(withSessions)
		t.send(queue, in("a", "a1"), in("b", "b1"), in("a", "a2"), in("b", "b2"))
		receiver := t.accept(queue, "b")
		found := t.receive(receiver, 2)
		t.same(bodies(found), []string{"b1", "b2"}, "bodies")
		t.same([]string{receiver.SessionID(), *found[0].SessionID}, []string{"b", "b"}, "session")
		t.must(receiver.LockedUntil().After(time.Now()), "the lock has ended")
		for _, message := range found {
			t.ok(receiver.CompleteMessage(t.ctx, message, nil))
		}
		t.ok(receiver.Close(t.ctx))
		return "only its own messages, in order"
	}},
	{"session-next", func(t *test) string {
		queue := t.queue(withSessions)
		t.send(queue, in("a", "1"), in("b", "2"))
		var found []string
		for range 2 {
			receiver, err := client.AcceptNextSessionForQueue(t.ctx, queue, nil)
			t.ok(err)
			found = append(found, receiver.SessionID())
		}
		sort.Strings(found)
		t.same(found, []string{"a", "b"}, "sessions")
		return "each got a session of its own"
	}},
	{"session-none", func(t *test) string {
		ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
		defer cancel()
		_, err := client.AcceptNextSessionForQueue(ctx, t.queue(withSessions), nil)
		return t.refused(err, string(azservicebus.CodeTimeout), "context deadline exceeded")
	}},
	{"session-state", func(t *test) string {
		queue := t.queue(withSessions)
		receiver := t.accept(queue, "s")
		state, err := receiver.GetSessionState(t.ctx, nil)
		t.ok(err)
		t.same(len(state), 0, "state of a new session")
		t.ok(receiver.SetSessionState(t.ctx, []byte("step 3"), nil))
		t.ok(receiver.Close(t.ctx))
		again := t.accept(queue, "s")
		state, err = again.GetSessionState(t.ctx, nil)
		t.ok(err)
		t.same(string(state), "step 3", "state")
		t.ok(again.SetSessionState(t.ctx, nil, nil))
		state, err = again.GetSessionState(t.ctx, nil)
		t.ok(err)
		t.same(len(state), 0, "state after it was removed")
		return "kept when the session was closed and opened again"
	}},
	{"session-locked", func(t *test) string {
		queue := t.queue(withSessions)
		t.accept(queue, "s")
		_, err := client.AcceptSessionForQueue(t.ctx, queue, "s", nil)
		return t.refused(err, "com.microsoft:session-cannot-be-locked")
	}},
	{"session-renew", func(t *test) string {
		queue := t.queue(withShortSessions)
		t.send(queue, in("s", "1"))
		receiver := t.accept(queue, "s")
		message := t.receive(receiver, 1)[0]
		first := receiver.LockedUntil()
		time.Sleep(3 * time.Second)
		t.ok(receiver.RenewSessionLock(t.ctx, nil))
		longer := receiver.LockedUntil().Sub(first)
		t.must(longer > 0, "the lock does not end later")
		time.Sleep(3500 * time.Millisecond)
		t.ok(receiver.CompleteMessage(t.ctx, message, nil))
		return fmt.Sprintf("%v longer", longer)
	}},
	{"session-lock-lost", func(t *test) string {
		queue := t.queue(withShortSessions)
		t.send(queue, in("s", "1"))
		receiver := t.accept(queue, "s")
		message := t.receive(receiver, 1)[0]
		time.Sleep(6500 * time.Millisecond)
		code := t.refused(receiver.CompleteMessage(t.ctx, message, nil), string(azservicebus.CodeLockLost))
		// The client has accepted the session again by itself: it takes a lost one for something to try again.
		t.same(t.receive(receiver, 1)[0].DeliveryCount, uint32(2), "delivery count")
		return code
	}},
	{"session-settle", func(t *test) string {
		queue := t.queue(withSessions)
		t.send(queue, in("s", "c"), in("s", "a"), in("s", "l"), in("s", "d"))
		receiver := t.accept(queue, "s")
		found := t.receive(receiver, 4)
		t.ok(receiver.CompleteMessage(t.ctx, found[0], nil))
		t.ok(receiver.DeadLetterMessage(t.ctx, found[2], nil))
		t.ok(receiver.DeferMessage(t.ctx, found[3], nil))
		t.ok(receiver.AbandonMessage(t.ctx, found[1], nil))
		again := t.receive(receiver, 1)[0]
		t.same([]any{string(again.Body), again.DeliveryCount}, []any{"a", uint32(2)}, "abandoned")
		deferred, err := receiver.ReceiveDeferredMessages(t.ctx, []int64{*found[3].SequenceNumber}, nil)
		t.ok(err)
		t.ok(receiver.CompleteMessage(t.ctx, deferred[0], nil))
		dead := t.receive(t.deadLetters(queue), 1)[0]
		t.same([]string{string(dead.Body), *dead.SessionID}, []string{"l", "s"}, "dead-lettered")
		return "in all four ways"
	}},
	{"session-peek", func(t *test) string {
		queue := t.queue(withSessions)
		t.send(queue, in("a", "1"), in("b", "2"))
		found, err := t.accept(queue, "b").PeekMessages(t.ctx, 5, nil)
		t.ok(err)
		t.same(bodies(found), []string{"2"}, "bodies")
		return "only its own"
	}},
	{"session-receive-and-delete", func(t *test) string {
		queue := t.queue(withSessions)
		t.send(queue, in("a", "1"))
		options := &azservicebus.SessionReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}
		receiver, err := client.AcceptSessionForQueue(t.ctx, queue, "a", options)
		t.ok(err)
		t.receive(receiver, 1)
		t.nothing(receiver)
		return "gone"
	}},
	{"session-needed", func(t *test) string {
		queue := t.queue(withSessions)
		code := t.refused(t.sender(queue).SendMessage(t.ctx, text("1"), nil), "amqp:not-allowed")
		_, err := t.receiver(queue, nil).ReceiveMessages(t.ctx, 1, nil)
		t.refused(err, "amqp:not-allowed")
		_, err = client.AcceptSessionForQueue(t.ctx, t.queue(nil), "s", nil)
		t.refused(err, "amqp:not-allowed")
		return code + ", three times"
	}},
	{"session-subscription", func(t *test) string {
		topic := t.topic()
		t.subscription(topic, "s", &admin.SubscriptionProperties{RequiresSession: ptr(true)})
		t.send(topic, in("x", "1"))
		receiver, err := client.AcceptNextSessionForSubscription(t.ctx, topic, "s", nil)
		t.ok(err)
		t.same([]string{receiver.SessionID(), string(t.receive(receiver, 1)[0].Body)}, []string{"x", "1"}, "session and body")
		return "session of a subscription"
	}},
	{"session-list", func(t *test) string {
		queue := t.queue(withSessions)
		for n := range 105 {
			t.send(queue, in(fmt.Sprintf("s%03d", n), "1"))
		}
		t.ok(t.accept(queue, "state-only").SetSessionState(t.ctx, []byte("x"), nil))
		var found []string
		pages := 0
		for pager := client.NewListSessionsForQueuePager(queue, nil); pager.More(); pages++ {
			page, err := pager.NextPage(t.ctx)
			t.ok(err)
			found = append(found, page.Sessions...)
		}
		t.same(len(found), 106, "sessions")
		return fmt.Sprintf("106 sessions on %d pages", pages)
	}},
}
