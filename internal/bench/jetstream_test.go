package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// jetStreamWait limits the wait for an answer.
const jetStreamWait = 30 * time.Second

// jetStream is an embedded nats-server whose streams are files that are synced after every message.
// A request is published to a work-queue stream and kept; a worker consumes it, publishes the result
// to another stream and, when that is kept, notifies the requester.
type jetStream struct {
	js     jetstream.JetStream
	worker *nats.Conn
	wait   []chan string // of each requester: ids of the tasks with a kept result
}

// jetStreamRoundTrips is a subject whose callers publish a work_request and wait for its result.
func jetStreamRoundTrips(b *testing.B, name string, callers int) *subject {
	b.Helper()
	j := startJetStream(b, callers)
	return &subject{name: name, callers: callers, slice: taskSlice, timed: true, do: func(c, _ int) error { return j.roundTrip(c) }}
}

func startJetStream(b *testing.B, callers int) *jetStream {
	b.Helper()
	server, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: b.TempDir(), SyncAlways: true,
	})
	require.NoError(b, err)
	server.Start()
	b.Cleanup(func() {
		server.Shutdown()
		server.WaitForShutdown()
	})
	require.True(b, server.ReadyForConnections(time.Minute), "nats-server does not start")
	connect := func() *nats.Conn {
		conn, err := nats.Connect(server.ClientURL())
		require.NoError(b, err)
		b.Cleanup(conn.Close)
		return conn
	}
	requester := connect()
	j := &jetStream{worker: connect(), wait: make([]chan string, callers)}
	j.js, err = jetstream.New(requester)
	require.NoError(b, err)
	ctx, cancel := context.WithTimeout(detached(), time.Minute)
	defer cancel()
	requests, err := j.js.CreateStream(ctx, jetstream.StreamConfig{Name: "requests", Subjects: []string{"request.*"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage})
	require.NoError(b, err)
	_, err = j.js.CreateStream(ctx, jetstream.StreamConfig{Name: "results", Subjects: []string{"result.*"}, Storage: jetstream.FileStorage})
	require.NoError(b, err)
	for c := range callers {
		j.wait[c] = make(chan string, 1)
		_, err := requester.Subscribe(fmt.Sprintf("done.%d", c), func(m *nats.Msg) { j.wait[c] <- string(m.Data) })
		require.NoError(b, err)
	}
	require.NoError(b, requester.Flush())
	j.work(ctx, b, requests)
	return j
}

// work starts the worker. Results are published by as many goroutines as there are requests.
func (j *jetStream) work(ctx context.Context, b *testing.B, requests jetstream.Stream) {
	b.Helper()
	publisher, err := jetstream.New(j.worker)
	require.NoError(b, err)
	consumer, err := requests.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4096})
	require.NoError(b, err)
	var answering sync.WaitGroup
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		answering.Go(func() {
			if err := j.answer(publisher, m); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
				b.Errorf("the JetStream worker: %v", err)
			}
		})
	}, jetstream.PullMaxMessages(512))
	require.NoError(b, err)
	b.Cleanup(func() {
		consuming.Stop()
		<-consuming.Closed()
		answering.Wait()
	})
}

// answer publishes the result, notifies the requester when it is kept, and removes the request.
func (j *jetStream) answer(publisher jetstream.JetStream, m jetstream.Msg) error {
	message, err := envelope.Parse(m.Data())
	if err != nil {
		return err
	}
	work, ok := message.Payload.(envelope.WorkRequest)
	if !ok {
		return errors.New("not a work_request")
	}
	result, err := json.Marshal(map[string]any{"task_id": work.TaskID, "status": "success", "output": "done"})
	if err != nil {
		return err
	}
	caller := m.Headers().Get("Caller")
	ctx, cancel := context.WithTimeout(detached(), jetStreamWait)
	defer cancel()
	if _, err := publisher.Publish(ctx, "result."+caller, result); err != nil {
		return err
	}
	if err := j.worker.Publish("done."+caller, []byte(work.TaskID.String())); err != nil {
		return err
	}
	return m.Ack()
}

// roundTrip publishes a request and waits for its result.
func (j *jetStream) roundTrip(caller int) error {
	ctx, cancel := context.WithTimeout(detached(), jetStreamWait)
	defer cancel()
	task := uuid.New()
	request := nats.NewMsg("request." + strconv.Itoa(caller))
	request.Header.Set("Caller", strconv.Itoa(caller))
	request.Data = workRequest(task)
	if _, err := j.js.PublishMsg(ctx, request); err != nil {
		return err
	}
	select {
	case id := <-j.wait[caller]:
		if id != task.String() {
			return fmt.Errorf("the result of the task %s instead of %s", id, task)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("JetStream: no result: %w", ctx.Err())
	}
}
