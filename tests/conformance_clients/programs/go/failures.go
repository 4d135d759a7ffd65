package main

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/coder/websocket"
)

var key = regexp.MustCompile(`SharedAccessKey=[^;]+`)

// dial is what the client's documentation shows, without TLS: the string is one for a local namespace.
func dial(ctx context.Context, arguments azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
	url := strings.Replace(arguments.Host, "wss://", "ws://", 1)
	connection, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"amqp"}})
	if err != nil {
		return nil, err
	}
	return websocket.NetConn(ctx, connection, websocket.MessageBinary), nil
}

func sendOne(t *test, other *azservicebus.Client, entity string) error {
	sender, err := other.NewSender(entity, nil)
	t.ok(err)
	return sender.SendMessage(t.ctx, text("1"), nil)
}

func receiveOne(t *test, other *azservicebus.Client, entity string) error {
	receiver, err := other.NewReceiverForQueue(entity, nil)
	t.ok(err)
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	_, err = receiver.ReceiveMessages(ctx, 1, nil)
	return err
}

var failureChecks = []check{
	{"websocket", func(t *test) string {
		queue := t.queue(nil)
		other := t.otherClient(bus, &azservicebus.ClientOptions{NewWebSocketConn: dial})
		body := bytes.Repeat([]byte{3}, 200*1024)
		sender, err := other.NewSender(queue, nil)
		t.ok(err)
		t.ok(sender.SendMessage(t.ctx, text("1"), nil))
		t.ok(sender.SendMessage(t.ctx, &azservicebus.Message{Body: body}, nil))
		receiver, err := other.NewReceiverForQueue(queue, nil)
		t.ok(err)
		found := t.receive(receiver, 2)
		t.must(bytes.Equal(found[1].Body, body), "the large body came back changed")
		for _, message := range found {
			t.ok(receiver.CompleteMessage(t.ctx, message, nil))
		}
		return "sent, received and completed, 200 KiB too"
	}},
	{"wrong-key", func(t *test) string {
		queue := t.queue(nil)
		wrong := key.ReplaceAllString(bus, "SharedAccessKey=d3Jvbmc=")
		code := t.refused(sendOne(t, t.otherClient(wrong, nil), queue), string(azservicebus.CodeUnauthorizedAccess))
		other, err := admin.NewClientFromConnectionString(wrong, nil)
		t.ok(err)
		_, err = other.GetQueue(t.ctx, queue, nil)
		return code + ", " + t.refused(err, "401")
	}},
	{"missing-right", func(t *test) string {
		queue := t.queue(nil)
		t.send(queue, text("1"))
		code := t.refused(receiveOne(t, t.otherClient(variable("BUS_SENDER"), nil), queue), string(azservicebus.CodeUnauthorizedAccess))
		listener := t.otherClient(variable("BUS_LISTENER"), nil)
		t.ok(receiveOne(t, listener, queue))
		t.refused(sendOne(t, listener, queue), string(azservicebus.CodeUnauthorizedAccess))
		other, err := admin.NewClientFromConnectionString(variable("BUS_LISTENER"), nil)
		t.ok(err)
		_, err = other.CreateQueue(t.ctx, "none", nil)
		return code + ", twice, and " + t.refused(err, "401", "403")
	}},
	{"no-such-entity", func(t *test) string {
		// CodeNotFound if $cbs refuses, the condition if the link is refused.
		codes := []string{string(azservicebus.CodeNotFound), "amqp:not-found"}
		code := t.refused(sendOne(t, client, "missing"), codes...)
		t.refused(receiveOne(t, client, "missing"), codes...)
		return code + ", twice"
	}},
	{"full", func(t *test) string {
		queue := t.queue(&admin.QueueProperties{MaxSizeInMegabytes: ptr(int32(1))})
		sender := t.sender(queue)
		large := &azservicebus.Message{Body: make([]byte, 200*1024)}
		var err error
		for range 12 {
			if err = sender.SendMessage(t.ctx, large, nil); err != nil {
				break
			}
		}
		code := t.refused(err, "amqp:resource-limit-exceeded")
		if isProxied {
			for began := time.Now(); err != nil; err = sender.SendMessage(t.ctx, large, nil) {
				t.must(time.Since(began) < time.Minute, "sends do not go on: %v", err)
			}
			return code + ", until the proxy took it for an outage: sends go on"
		}
		t.receive(t.receiver(queue, deleting), 3)
		t.ok(sender.SendMessage(t.ctx, text("1"), nil))
		return code + "; taken again when there was room"
	}},
	{"disabled", func(t *test) string {
		queue := t.queue(nil)
		change := func(status admin.EntityStatus) {
			found, err := manager.GetQueue(t.ctx, queue, nil)
			t.ok(err)
			found.Status = &status
			_, err = manager.UpdateQueue(t.ctx, queue, found.QueueProperties, nil)
			t.ok(err)
		}
		change(admin.EntityStatusDisabled)
		other := t.otherClient(bus, nil)
		if !isProxied {
			t.refused(sendOne(t, other, queue), "com.microsoft:entity-disabled")
		}
		code := t.refused(receiveOne(t, other, queue), "com.microsoft:entity-disabled")
		change(admin.EntityStatusReceiveDisabled)
		t.send(queue, text("2"))
		change(admin.EntityStatusActive)
		t.receive(t.receiver(queue, nil), 1)
		return code
	}},
	{"busy", func(t *test) string {
		return t.refused(sendOne(t, t.otherClient(bus, nil), "busy"), "com.microsoft:server-busy")
	}},
	{"busy-once", func(t *test) string {
		retries := azservicebus.RetryOptions{MaxRetries: 2, RetryDelay: 200 * time.Millisecond}
		t.ok(sendOne(t, t.otherClient(bus, &azservicebus.ClientOptions{RetryOptions: retries}), "busy-once"))
		t.receive(t.receiver("busy-once", nil), 1)
		return "sent again by itself after a refusal"
	}},
	{"connection-lost", func(t *test) string {
		retries := azservicebus.RetryOptions{MaxRetries: 5, RetryDelay: 500 * time.Millisecond}
		other := t.otherClient(bus, &azservicebus.ClientOptions{RetryOptions: retries})
		sender, err := other.NewSender("dropped", nil)
		t.ok(err)
		receiver, err := other.NewReceiverForQueue("dropped", nil)
		t.ok(err)
		t.ok(sender.SendMessage(t.ctx, text("first"), nil))
		t.ok(receiver.CompleteMessage(t.ctx, t.receive(receiver, 1)[0], nil))
		write(map[string]any{"do": "drop"})
		time.Sleep(2 * time.Second)
		t.ok(sender.SendMessage(t.ctx, text("second"), nil))
		t.same(bodies(t.receive(receiver, 1)), []string{"second"}, "bodies")
		return "sender and receiver went on after their connection was reset"
	}},
}
