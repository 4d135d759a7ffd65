// Goes through all that the official Go client promises; writes one line of JSON for each check.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

const (
	atATime = 6
	longest = 150 * time.Second
	patient = 20 * time.Second
)

type check struct {
	name string
	work func(t *test) string
}

// test is one check at work. What fails in it panics with a failure.
type test struct {
	ctx context.Context
}

type failure struct{ text string }

var (
	bus       = os.Getenv("BUS")
	isProxied = os.Getenv("PROXIED") == "1"
	client    *azservicebus.Client
	manager   *admin.Client
	made      atomic.Int64
	output    sync.Mutex
)

func ptr[T any](value T) *T { return &value }

func (t *test) must(condition bool, text string, more ...any) {
	if !condition {
		panic(failure{fmt.Sprintf(text, more...)})
	}
}

func (t *test) ok(err error) {
	if err != nil {
		panic(failure{err.Error()})
	}
}

func (t *test) same(found, expected any, what string) {
	t.must(reflect.DeepEqual(found, expected), "%s: %v (%T) instead of %v (%T)", what, found, found, expected, expected)
}

// refused returns the code of an error that has to be one of these.
func (t *test) refused(err error, codes ...string) string {
	t.must(err != nil, "nothing was refused instead of %v", codes)
	found := codeOf(err)
	for _, code := range codes {
		if code == found || strings.Contains(err.Error(), code) {
			return code
		}
	}
	t.must(false, "%s (%v) instead of %v", found, err, codes)
	return ""
}

func codeOf(err error) string {
	var busError *azservicebus.Error
	if errors.As(err, &busError) {
		return string(busError.Code)
	}
	var httpError *azcore.ResponseError
	if errors.As(err, &httpError) {
		return fmt.Sprint(httpError.StatusCode)
	}
	return fmt.Sprintf("%T", err)
}

func (t *test) queue(properties *admin.QueueProperties) string {
	name := fmt.Sprintf("go-queue-%d-%d", made.Add(1), time.Now().UnixMilli())
	_, err := manager.CreateQueue(t.ctx, name, &admin.CreateQueueOptions{Properties: properties})
	t.ok(err)
	return name
}

func (t *test) topic() string {
	name := fmt.Sprintf("go-topic-%d-%d", made.Add(1), time.Now().UnixMilli())
	_, err := manager.CreateTopic(t.ctx, name, nil)
	t.ok(err)
	return name
}

func (t *test) subscription(topic, name string, properties *admin.SubscriptionProperties) {
	_, err := manager.CreateSubscription(t.ctx, topic, name, &admin.CreateSubscriptionOptions{Properties: properties})
	t.ok(err)
}

func (t *test) sender(entity string) *azservicebus.Sender {
	sender, err := client.NewSender(entity, nil)
	t.ok(err)
	return sender
}

func (t *test) send(entity string, messages ...*azservicebus.Message) {
	sender := t.sender(entity)
	for _, message := range messages {
		t.ok(sender.SendMessage(t.ctx, message, nil))
	}
	t.ok(sender.Close(t.ctx))
}

func (t *test) receiver(queue string, options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	receiver, err := client.NewReceiverForQueue(queue, options)
	t.ok(err)
	return receiver
}

func (t *test) of(topic, subscription string) *azservicebus.Receiver {
	receiver, err := client.NewReceiverForSubscription(topic, subscription, nil)
	t.ok(err)
	return receiver
}

func (t *test) deadLetters(queue string) *azservicebus.Receiver {
	return t.receiver(queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

type receives interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// receive returns as many messages as there have to be.
func (t *test) receive(receiver receives, count int) []*azservicebus.ReceivedMessage {
	found := t.whatComes(receiver, count, patient)
	t.must(len(found) == count, "%d of %d messages came", len(found), count)
	return found
}

func (t *test) whatComes(receiver receives, most int, wait time.Duration) []*azservicebus.ReceivedMessage {
	ctx, cancel := context.WithTimeout(t.ctx, wait)
	defer cancel()
	var found []*azservicebus.ReceivedMessage
	for len(found) < most {
		messages, err := receiver.ReceiveMessages(ctx, most-len(found), nil)
		found = append(found, messages...)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		t.ok(err)
	}
	return found
}

func (t *test) nothing(receiver receives) {
	found := t.whatComes(receiver, 1, 1500*time.Millisecond)
	t.must(len(found) == 0, "a message came, and none should")
}

func text(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	return found
}

// otherClient is one with another string or other options.
func (t *test) otherClient(connectionString string, options *azservicebus.ClientOptions) *azservicebus.Client {
	if options == nil {
		options = &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}}
	}
	other, err := azservicebus.NewClientFromConnectionString(connectionString, options)
	t.ok(err)
	return other
}

func write(line map[string]any) {
	encoded, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(encoded))
}

func (c check) run() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	line := map[string]any{"check": c.name, "passed": true}
	func() {
		defer func() {
			if problem := recover(); problem != nil {
				line["passed"], line["evidence"] = false, fmt.Sprint(problem)
				if found, isFailure := problem.(failure); isFailure {
					line["evidence"] = found.text
				}
			}
		}()
		line["evidence"] = c.work(&test{ctx})
	}()
	line["ms"] = time.Since(began).Milliseconds()
	write(line)
}

// alone goes first and by itself: pages go by number, and what others make meanwhile would move them.
const alone = "admin-pages"

func main() {
	var err error
	options := &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: 1, RetryDelay: 200 * time.Millisecond}}
	if client, err = azservicebus.NewClientFromConnectionString(bus, options); err != nil {
		panic(err)
	}
	if manager, err = admin.NewClientFromConnectionString(bus, nil); err != nil {
		panic(err)
	}
	wanted := strings.Split(os.Getenv("CHECKS"), ",")
	for _, each := range administrationChecks {
		if each.name == alone && (wanted[0] == "" || contains(wanted, alone)) {
			each.run()
		}
	}
	waiting := make(chan check)
	var workers sync.WaitGroup
	for range atATime {
		workers.Go(func() {
			for next := range waiting {
				next.run()
			}
		})
	}
	for _, group := range [][]check{queueChecks, sessionChecks, topicChecks, administrationChecks, failureChecks} {
		for _, each := range group {
			if each.name != alone && (wanted[0] == "" || contains(wanted, each.name)) {
				waiting <- each
			}
		}
	}
	close(waiting)
	workers.Wait()
}

func contains(names []string, wanted string) bool {
	for _, name := range names {
		if name == wanted {
			return true
		}
	}
	return false
}

func variable(name string) string { return os.Getenv(name) }
