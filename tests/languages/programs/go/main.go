// The official Go client, as the README of the folder above says.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	batchSize    = 5
	afterFailure = 500 * time.Millisecond
	dueAfter     = time.Second
)

type command struct {
	ID      int      `json:"id"`
	Do      string   `json:"do"`
	Entity  string   `json:"entity"`
	How     string   `json:"how"`
	IDs     []string `json:"ids"`
	Max     int      `json:"max"`
	WaitMs  int      `json:"wait_ms"`
	Message string   `json:"message"`
	Prefix  string   `json:"prefix"`
	File    string   `json:"file"`
	PauseMs int      `json:"pause_ms"`
}

type values map[string]any

// idFile has a line for each id, on disk before anything else happens.
type idFile struct {
	lock                       sync.Mutex
	file                       *os.File
	accepted, failed, received int
}

func (f *idFile) add(count *int, lines ...string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if count != nil {
		*count += len(lines)
	}
	for _, line := range lines {
		if _, err := f.file.WriteString(strings.ReplaceAll(line, "\n", " ") + "\n"); err != nil {
			log.Fatal(err)
		}
	}
	if err := f.file.Sync(); err != nil {
		log.Fatal(err)
	}
}

type kept struct {
	receiver *azservicebus.Receiver
	message  *azservicebus.ReceivedMessage
}

type client struct {
	bus       *azservicebus.Client
	senders   map[string]*azservicebus.Sender
	receivers map[string]*azservicebus.Receiver
	kept      map[string]kept
	files     []*idFile
	loops     sync.WaitGroup
	stopping  atomic.Bool
	lock      sync.Mutex
}

func (c *client) sender(entity string) (*azservicebus.Sender, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if sender, ok := c.senders[entity]; ok {
		return sender, nil
	}
	sender, err := c.bus.NewSender(entity, nil)
	if err == nil {
		c.senders[entity] = sender
	}
	return sender, err
}

func (c *client) receiver(entity string) (*azservicebus.Receiver, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if receiver, ok := c.receivers[entity]; ok {
		return receiver, nil
	}
	receiver, err := c.bus.NewReceiverForQueue(entity, nil)
	if err == nil {
		c.receivers[entity] = receiver
	}
	return receiver, err
}

func (c *client) send(entity, how string, ids []string) error {
	sender, err := c.sender(entity)
	if err != nil {
		return err
	}
	ctx := context.Background()
	messages := make([]*azservicebus.Message, len(ids))
	for n, id := range ids {
		messages[n] = &azservicebus.Message{MessageID: &ids[n], Body: []byte(id)}
	}
	switch how {
	case "schedule":
		_, err := sender.ScheduleMessages(ctx, messages, time.Now().Add(dueAfter), nil)
		return err
	case "batch":
		batch, err := sender.NewMessageBatch(ctx, nil)
		if err != nil {
			return err
		}
		for _, message := range messages {
			if err := batch.AddMessage(message, nil); err != nil {
				return err
			}
		}
		return sender.SendMessageBatch(ctx, batch, nil)
	default:
		return sender.SendMessage(ctx, messages[0], nil)
	}
}

func (c *client) keepSending(cmd command, file *idFile) {
	defer c.loops.Done()
	number := 0
	for turn := 0; !c.stopping.Load(); turn++ {
		how := []string{"single", "batch", "schedule"}[turn%3]
		count := batchSize
		if how == "single" {
			count = 1
		}
		var ids, lines []string
		for ; count > 0; count-- {
			ids = append(ids, fmt.Sprintf("%s-%d", cmd.Prefix, number))
			number++
		}
		if err := c.send(cmd.Entity, how, ids); err != nil {
			for _, id := range ids {
				lines = append(lines, fmt.Sprintf("failed %s %s %v", id, kindOf(err), err))
			}
			file.add(&file.failed, lines...)
			time.Sleep(afterFailure)
		} else {
			for _, id := range ids {
				lines = append(lines, "accepted "+id)
			}
			file.add(&file.accepted, lines...)
		}
		time.Sleep(time.Duration(cmd.PauseMs) * time.Millisecond)
	}
}

func (c *client) keepReceiving(cmd command, file *idFile) {
	defer c.loops.Done()
	ctx := context.Background()
	var receiver *azservicebus.Receiver
	for !c.stopping.Load() {
		err := func() error {
			var err error
			if receiver == nil {
				if receiver, err = c.bus.NewReceiverForQueue(cmd.Entity, nil); err != nil {
					return err
				}
			}
			messages, err := receive(receiver, 20, time.Second)
			if err != nil {
				return err
			}
			for _, message := range messages {
				file.add(&file.received, fmt.Sprintf(
					"received %s %d %d", message.MessageID, *message.SequenceNumber, message.DeliveryCount-1))
				if err := receiver.CompleteMessage(ctx, message, nil); err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			file.add(nil, fmt.Sprintf("problem %s %v", kindOf(err), err))
			time.Sleep(afterFailure)
		}
	}
}

// receive returns nothing, and no error, if nothing came in time.
func receive(receiver *azservicebus.Receiver, most int, wait time.Duration) ([]*azservicebus.ReceivedMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	messages, err := receiver.ReceiveMessages(ctx, most, nil)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return messages, err
}

func (c *client) run(cmd command) (values, error) {
	ctx := context.Background()
	switch cmd.Do {
	case "send":
		return nil, c.send(cmd.Entity, cmd.How, cmd.IDs)
	case "receive":
		receiver, err := c.receiver(cmd.Entity)
		if err != nil {
			return nil, err
		}
		messages, err := receive(receiver, cmd.Max, time.Duration(cmd.WaitMs)*time.Millisecond)
		for _, message := range messages {
			c.kept[message.MessageID] = kept{receiver, message}
		}
		return values{"messages": described(messages)}, err
	case "settle":
		one := c.kept[cmd.Message]
		if cmd.How == "complete" {
			return nil, one.receiver.CompleteMessage(ctx, one.message, nil)
		}
		return nil, one.receiver.AbandonMessage(ctx, one.message, nil)
	case "renew":
		one := c.kept[cmd.Message]
		return nil, one.receiver.RenewMessageLock(ctx, one.message, nil)
	case "peek":
		receiver, err := c.receiver(cmd.Entity)
		if err != nil {
			return nil, err
		}
		messages, err := receiver.PeekMessages(ctx, cmd.Max, nil)
		return values{"messages": described(messages)}, err
	case "start-sending", "start-receiving":
		file, err := os.OpenFile(cmd.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		ids := &idFile{file: file}
		c.files = append(c.files, ids)
		c.loops.Add(1)
		if cmd.Do == "start-sending" {
			go c.keepSending(cmd, ids)
		} else {
			go c.keepReceiving(cmd, ids)
		}
		return nil, nil
	case "stop":
		c.stopping.Store(true)
		c.loops.Wait()
		accepted, failed, received := 0, 0, 0
		for _, file := range c.files {
			accepted, failed, received = accepted+file.accepted, failed+file.failed, received+file.received
		}
		return values{"accepted": accepted, "failed": failed, "received": received}, nil
	}
	return nil, fmt.Errorf("unknown command %s", cmd.Do)
}

// described: in Go the first delivery is number 1, for all others it is 0.
func described(messages []*azservicebus.ReceivedMessage) []values {
	found := []values{}
	for _, message := range messages {
		found = append(found, values{
			"id": message.MessageID, "sequence": *message.SequenceNumber, "delivery_count": message.DeliveryCount - 1,
		})
	}
	return found
}

func kindOf(err error) string {
	var busError *azservicebus.Error
	if errors.As(err, &busError) {
		return fmt.Sprintf("azservicebus.Error(%s)", busError.Code)
	}
	return fmt.Sprintf("%T", err)
}

func main() {
	bus, err := azservicebus.NewClientFromConnectionString(os.Getenv("BUS"), nil)
	if err != nil {
		log.Fatal(err)
	}
	c := &client{
		bus: bus, senders: map[string]*azservicebus.Sender{}, receivers: map[string]*azservicebus.Receiver{},
		kept: map[string]kept{},
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var cmd command
		if err := json.Unmarshal(lines.Bytes(), &cmd); err != nil {
			log.Fatal(err)
		}
		began := time.Now()
		found, err := c.run(cmd)
		answer := values{"id": cmd.ID, "ms": time.Since(began).Milliseconds()}
		for key, value := range found {
			answer[key] = value
		}
		if err != nil {
			answer["error"], answer["text"] = kindOf(err), err.Error()
		}
		line, err := json.Marshal(answer)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(line))
	}
	_ = bus.Close(context.Background())
}
