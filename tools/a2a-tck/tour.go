package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
)

// tourTimeout limits a tour.
const tourTimeout = time.Minute

// tour calls a server with the client of the SDK for Go, over each binding and version: discover, send, stream, reply, push,
// resubscribe and cancel. The proxy adds the token.
func tour(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, tourTimeout)
	defer cancel()
	pushes, receiver, err := receive(ctx)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		binding a2a.TransportProtocol
		version a2a.ProtocolVersion
	}{{a2a.TransportProtocolJSONRPC, a2a.Version}, {a2a.TransportProtocolHTTPJSON, a2a.Version}, {a2a.TransportProtocolJSONRPC, a2av0.Version}} {
		if err := tourOf(ctx, server, receiver, pushes, c.binding, c.version); err != nil {
			return fmt.Errorf("%s of version %s: %w", c.binding, c.version, err)
		}
		fmt.Printf("%s of version %s: discover, send, stream, reply, push, resubscribe and cancel work\n", c.binding, c.version)
	}
	return nil
}

// receive starts a receiver of push notifications, which sends the ids of the tasks that have ended.
func receive(ctx context.Context) (<-chan string, string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	ended := make(chan string, 100)
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Task *struct{ ID string }
			ID   string
			// Status is that of a task of version 0.3.
			Status struct{ State string }
		}
		switch err := json.NewDecoder(r.Body).Decode(&body); {
		case err != nil || r.Header.Get("X-A2A-Notification-Token") != "tour" || r.Header.Get("Authorization") != "Bearer secret":
		case body.Task != nil:
			ended <- body.Task.ID
		case body.Status.State == "completed":
			ended <- body.ID
		}
	})}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	go func() { _ = srv.Serve(l) }()
	return ended, "http://" + l.Addr().String(), nil
}

// connect returns a client for an interface of the server's card.
func connect(ctx context.Context, server string, binding a2a.TransportProtocol, version a2a.ProtocolVersion) (*a2aclient.Client, error) {
	card, err := agentcard.NewResolver(http.DefaultClient).Resolve(ctx, server)
	if err != nil {
		return nil, err
	}
	if !card.Capabilities.PushNotifications || !card.Capabilities.Streaming {
		return nil, errors.New("the card offers no streams or no push notifications")
	}
	for _, i := range card.SupportedInterfaces {
		if i.ProtocolBinding == binding && i.ProtocolVersion == version {
			card.SupportedInterfaces = []*a2a.AgentInterface{i}
			return a2aclient.NewFromCard(ctx, card, a2aclient.WithJSONRPCTransport(http.DefaultClient), a2aclient.WithRESTTransport(http.DefaultClient),
				a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: http.DefaultClient}))
		}
	}
	return nil, errors.New("the card has no such interface")
}

// message returns a message for the agent of this program, whose id begins with a scenario.
func message(scenario, text string, about a2a.TaskInfoProvider) *a2a.SendMessageRequest {
	m := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
	if about != nil {
		m = a2a.NewMessageForTask(a2a.MessageRoleUser, about, a2a.NewTextPart(text))
	}
	m.ID = scenario + "-" + m.ID
	return &a2a.SendMessageRequest{Message: m}
}

func tourOf(ctx context.Context, server, receiver string, pushes <-chan string, binding a2a.TransportProtocol, version a2a.ProtocolVersion) error {
	client, err := connect(ctx, server, binding, version)
	if err != nil {
		return err
	}
	defer func() { _ = client.Destroy() }()
	ask := message("tck-input-required", "report", nil)
	ask.Config = &a2a.SendMessageConfig{PushConfig: &a2a.PushConfig{ID: "tour", URL: receiver, Token: "tour", Auth: &a2a.PushAuthInfo{Scheme: "Bearer", Credentials: "secret"}}}
	sent, err := client.SendMessage(ctx, ask)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	asked, isTask := sent.(*a2a.Task)
	if !isTask || asked.Status.State != a2a.TaskStateInputRequired {
		return fmt.Errorf("send: the task asks nothing: %v", sent)
	}
	for _, err := range client.SendStreamingMessage(ctx, message("tck-reply", "2026", asked)) {
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
	}
	done, err := client.GetTask(ctx, &a2a.GetTaskRequest{ID: asked.ID})
	if err != nil || done.Status.State != a2a.TaskStateCompleted || len(done.Artifacts) != 1 {
		return fmt.Errorf("get: %v: %w", done, errors.Join(err, errors.New("the task is not completed")))
	}
	select {
	case id := <-pushes:
		if id != string(asked.ID) {
			return fmt.Errorf("push: the end of the task %s instead of %s", id, asked.ID)
		}
	case <-ctx.Done():
		return fmt.Errorf("push: %w", ctx.Err())
	}
	return tourOfCancel(ctx, client, receiver)
}

// tourOfCancel configures push notifications of a task that does not end, follows it and cancels it.
func tourOfCancel(ctx context.Context, client *a2aclient.Client, receiver string) error {
	slow := message("tck-slow", "wait", nil)
	slow.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	sent, err := client.SendMessage(ctx, slow)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	id := sent.TaskInfo().TaskID
	if _, err := client.CreateTaskPushConfig(ctx, &a2a.CreateTaskPushConfigRequest{TaskID: id, Config: a2a.PushConfig{ID: "c-1", URL: receiver}}); err != nil {
		return fmt.Errorf("create a configuration: %w", err)
	}
	if _, err := client.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: id, ID: "c-1"}); err != nil {
		return fmt.Errorf("get a configuration: %w", err)
	}
	if err := client.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: id, ID: "c-1"}); err != nil {
		return fmt.Errorf("delete a configuration: %w", err)
	}
	var last a2a.Event
	for e, err := range client.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: id}) {
		if err != nil {
			return fmt.Errorf("resubscribe: %w", err)
		}
		if last == nil {
			if _, err := client.CancelTask(ctx, &a2a.CancelTaskRequest{ID: id}); err != nil {
				return fmt.Errorf("cancel: %w", err)
			}
		}
		last = e
	}
	if update, ok := last.(*a2a.TaskStatusUpdateEvent); !ok || update.Status.State != a2a.TaskStateCanceled {
		return fmt.Errorf("resubscribe: the stream ends with %v", last)
	}
	return nil
}
