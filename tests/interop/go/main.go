// Starts one push consumer of the Go client for each group:
//
//	consume NAME_SERVER TOPIC (GROUP TAG|SQL92 EXPRESSION)...
//
// Prints each message as a line of JSON on stdout; ends, with its offsets committed, when its input ends.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// What one received message is printed as; the body is in base64.
type told struct {
	Group           string `json:"group"`
	Topic           string `json:"topic"`
	QueueId         int    `json:"queueId"`
	QueueOffset     int64  `json:"queueOffset"`
	UniqueKey       string `json:"uniqueKey"`
	OffsetMessageId string `json:"offsetMessageId"`
	Keys            string `json:"keys"`
	Tags            string `json:"tags"`
	Body            []byte `json:"body"`
}

var printing sync.Mutex

func show(group string, message *primitive.MessageExt) {
	line, err := json.Marshal(told{
		Group:           group,
		Topic:           message.Topic,
		QueueId:         message.Queue.QueueId,
		QueueOffset:     message.QueueOffset,
		UniqueKey:       message.MsgId,
		OffsetMessageId: message.OffsetMsgId,
		Keys:            message.GetKeys(),
		Tags:            message.GetTags(),
		Body:            message.Body,
	})
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func start(nameServer, topic, group, kind, expression string) (rocketmq.PushConsumer, error) {
	started, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(group),
		consumer.WithInstance(group),
		consumer.WithNameServer(primitive.NamesrvAddr{nameServer}),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.ExpressionType(kind), Expression: expression}
	listener := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			show(group, message)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := started.Subscribe(topic, selector, listener); err != nil {
		return nil, err
	}
	return started, started.Start()
}

func run(nameServer, topic string, rest []string) error {
	var consumers []rocketmq.PushConsumer
	for ; len(rest) >= 3; rest = rest[3:] {
		started, err := start(nameServer, topic, rest[0], rest[1], rest[2])
		if err != nil {
			return err
		}
		consumers = append(consumers, started)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for _, started := range consumers {
		if err := started.Shutdown(); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	rlog.SetLogLevel("warn")
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
