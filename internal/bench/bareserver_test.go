package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/httpkit"
	"comet/internal/wire/envelope"
)

// bareServer is the least that a durable task server with comet's HTTP, access log, envelopes and
// WebSocket does. A work_request is one row and one event in one commit, its result is one update
// and one event in another; requesters, slots and the choice of a worker are in memory. It has no
// retries, sessions, budgets, time limits, authentication by database or restart.
type bareServer struct {
	addr   string
	writer *bareWriter
	// answered counts the answers of the workers.
	answered atomic.Int64

	mu      sync.Mutex
	workers []*bareWorker
	next    int
	open    map[uuid.UUID]*bareTask
}

// bareTask is an open task.
type bareTask struct {
	request envelope.Envelope
	work    envelope.WorkRequest
	worker  *bareWorker
	// result receives the result after its commit, or an error.
	result chan bareResult
}

type bareResult struct {
	payload envelope.WorkResult
	err     error
}

// bareWorker is the connection of a worker. Frames of out are written in order; it holds one order
// and one acknowledgement for each slot, so that the writer never waits for it.
type bareWorker struct {
	id    string
	slots int // free ones
	out   chan []byte
}

// startBareServer starts the server with workers that answer at once.
func startBareServer(b *testing.B, database string) *bareServer {
	b.Helper()
	s := &bareServer{writer: openBareWriter(b, newStorage(b, database).testDatabase()), open: map[uuid.UUID]*bareTask{}}
	router := chi.NewRouter()
	router.Use(httpkit.RequestIDs, httpkit.AccessLog(accessLog(b), 1), requireAdmin)
	router.Post("/api/agent/message", s.receive)
	router.Get("/api/agent/connect", s.connect)
	s.addr = serve(b, router)
	for n := range taskWorkers {
		startEnvelopeWorker(b, s.addr, adminToken, &s.answered)
		require.Eventually(b, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.workers) == n+1
		}, time.Minute, 5*time.Millisecond)
	}
	return s
}

func requireAdmin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+adminToken {
			http.Error(w, "the token is not valid", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// receive accepts a work_request and, with Prefer: wait, waits for its result.
func (s *bareServer) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, envelope.MaxSize))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	message, err := envelope.Parse(body)
	work, isRequest := message.Payload.(envelope.WorkRequest)
	if err != nil || !isRequest {
		http.Error(w, fmt.Sprint("not a work_request: ", err), http.StatusBadRequest)
		return
	}
	task, err := s.accept(message, work)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	wait, waits, err := httpkit.PreferredWait(r, time.Minute)
	if err != nil || !waits {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case got := <-task.result:
		if got.err != nil {
			http.Error(w, got.err.Error(), http.StatusInternalServerError)
			return
		}
		text, err := envelope.Format(envelope.Reply(message, uuid.New(), time.Now(), got.payload))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	case <-timer.C:
		w.WriteHeader(http.StatusAccepted)
	case <-r.Context().Done():
	}
}

// accept stores a task for a worker with a free slot, and sends it to the worker after the commit.
func (s *bareServer) accept(message envelope.Envelope, work envelope.WorkRequest) (*bareTask, error) {
	task := &bareTask{request: message, work: work, result: make(chan bareResult, 1)}
	if err := s.assign(task); err != nil {
		return nil, err
	}
	now := time.Now().UnixMicro()
	data, err := json.Marshal(map[string]any{"task_id": work.TaskID, "state": "new", "agent_id": task.worker.id})
	if err != nil {
		return nil, err
	}
	stored := make(chan error, 1)
	s.writer.queue <- &bareOperation{
		taskID: work.TaskID.String(), at: now, data: data,
		createArgs: []any{
			work.TaskID.String(), work.WorkType, message.RequestID.String(), message.TraceID.String(), message.MessageID.String(), message.From,
			task.worker.id, string(work.Parameters), now,
		},
		committed: func(err error) { stored <- err },
	}
	if err := <-stored; err != nil {
		return nil, err
	}
	order := envelope.Envelope{
		ProtocolVersion: envelope.Version, MessageID: uuid.New(), From: envelope.Orchestrator, To: message.To, Timestamp: time.Now().UTC(),
		TraceID: message.TraceID, RequestID: message.RequestID, Payload: work,
	}
	order.Type = work.Type()
	text, err := envelope.Format(order)
	if err != nil {
		return nil, err
	}
	task.worker.out <- text
	return task, nil
}

// assign takes a slot of the next worker that has one.
func (s *bareServer) assign(task *bareTask) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.open[task.work.TaskID]; exists {
		return errors.New("the task exists")
	}
	for range s.workers {
		s.next = (s.next + 1) % len(s.workers)
		if w := s.workers[s.next]; w.slots > 0 {
			w.slots--
			task.worker = w
			s.open[task.work.TaskID] = task
			return nil
		}
	}
	return errors.New("no worker has a free slot")
}

// connect serves the WebSocket of a worker.
func (s *bareServer) connect(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"envelope.v1"}, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(envelope.MaxSize)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	s.mu.Lock()
	worker := &bareWorker{id: fmt.Sprintf("worker-%d", len(s.workers)+1), slots: workerConcurrency, out: make(chan []byte, 4*workerConcurrency)}
	s.workers = append(s.workers, worker)
	s.mu.Unlock()
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			select {
			case frame := <-worker.out:
				if conn.Write(ctx, websocket.MessageText, frame) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	defer writing.Wait()
	defer cancel()
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if bytes.HasPrefix(frame, []byte(`{"ack"`)) {
			continue
		}
		if err := s.complete(worker, frame); err != nil {
			return
		}
	}
}

// complete stores a result. After the commit it acknowledges the message and wakes the requester.
func (s *bareServer) complete(worker *bareWorker, frame []byte) error {
	message, err := envelope.Parse(frame)
	if err != nil {
		return err
	}
	result, ok := message.Payload.(envelope.WorkResult)
	if !ok {
		return errors.New("not a work_result")
	}
	s.mu.Lock()
	task := s.open[result.TaskID]
	delete(s.open, result.TaskID)
	s.mu.Unlock()
	if task == nil {
		return errors.New("an unknown task")
	}
	data, err := json.Marshal(map[string]any{"task_id": result.TaskID, "state": "done", "agent_id": worker.id})
	if err != nil {
		return err
	}
	s.writer.queue <- &bareOperation{
		taskID: result.TaskID.String(), output: result.Output, at: time.Now().UnixMicro(), data: data,
		committed: func(err error) {
			s.mu.Lock()
			worker.slots++
			s.mu.Unlock()
			task.result <- bareResult{payload: result, err: err}
			worker.out <- fmt.Appendf(nil, `{"ack":["%s"]}`, message.MessageID)
		},
	}
	return nil
}
