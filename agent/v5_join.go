package agent

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/coder/websocket"

	"comet/internal/wire/envelope"
	"comet/internal/wire/v5"
)

// dial implements speech: the agent says J, and is told its number.
func (p *pipes) dial(ctx context.Context) (*websocket.Conn, Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := p.connect(ctx, url.Values{"concurrency": {strconv.Itoa(p.opts.Concurrency)}}, subprotocolV5)
	if err != nil {
		return nil, Hello{}, err
	}
	h, err := p.join(ctx, conn)
	if err != nil {
		_ = conn.Close(websocket.StatusProtocolError, "the agent was not registered")
		return nil, h, endOfLine(err)
	}
	return conn, h, nil
}

// join says J and reads the answer.
func (p *pipes) join(ctx context.Context, conn *websocket.Conn) (h Hello, err error) {
	text, err := p.joining()
	if err != nil {
		return h, err
	}
	if err := p.put(ctx, conn, []byte(text)); err != nil {
		return h, err
	}
	_, data, err := conn.Read(ctx)
	if err != nil {
		return h, err
	}
	m, err := v5.Parse(string(data))
	if err != nil {
		return h, fmt.Errorf("the server answers with no line: %w", err)
	}
	if err := p.signer.verify(string(data), m); err != nil {
		return h, err
	}
	id, _ := m.Data.Get("id")
	if m.Type == v5.Failure {
		return h, refusedLine(m)
	}
	self, err := v5.ParseAddress(id)
	if err != nil || m.Type != v5.Ack {
		return h, fmt.Errorf("the server has not registered the agent: %s", data)
	}
	p.mu.Lock()
	p.self, p.due = self, map[place][]*line{}
	p.mu.Unlock()
	return Hello{AgentID: self.String(), AgentType: "worker", Version: "V5", Concurrency: p.opts.Concurrency}, nil
}

// joining is the J. Capabilities that there is no room for are those of the registry.
func (p *pipes) joining() (string, error) {
	places := func() *v5.Writer {
		return new(v5.Writer).Add("version", "V5").Number("concurrency", int64(p.opts.Concurrency))
	}
	data, err := places().List("caps", p.supported()...).Data()
	if err != nil {
		data, err = places().Data()
	}
	if err != nil {
		return "", err
	}
	return p.system(v5.Join, data)
}

// system is a line about the agent itself.
func (p *pipes) system(t v5.Type, data v5.Data) (string, error) {
	from, number := p.next()
	if from.Role == 0 {
		from = v5.NthWorker(1) // whoever joins may say any number
	}
	return v5.Format(v5.Message{
		Number: number, From: from, To: orchestrator(), Type: t, Task: v5.TaskOf(0), Context: v5.SystemContext, Data: data,
	})
}

// beat implements speech: H. One that stops is busy, because what it has shall not go to
// others yet, as with L.
func (p *pipes) beat(h envelope.Heartbeat) ([]byte, error) {
	load := min(*h.Load, 100)
	if h.Status != envelope.PresenceOnline {
		load = 100
	}
	data, err := new(v5.Writer).Add("load", strconv.Itoa(load)+"%").Number("queue", int64(*h.Queue)).Data()
	if err != nil {
		return nil, err
	}
	text, err := p.system(v5.Heartbeat, data)
	return []byte(text), err
}
