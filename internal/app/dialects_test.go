package app_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/app"
	"comet/internal/wire/pipe"
	"comet/store/storetest"
)

// TestDialectsTogether: whoever asks, in whichever dialect, is served by whoever can do
// it, in whichever that speaks. Each behaviour is one case for every pair of them.
func TestDialectsTogether(t *testing.T) {
	t.Parallel()
	inBabel(t, func(t *testing.T, h *babel) {
		for _, who := range h.askers() {
			for _, worker := range []string{"envelope", "lines", "websocket", "tcp"} {
				for rule, behaves := range map[string]func(*testing.T, *babel, asker, string){
					"work that is done": isDone, "its progress": isFollowed, "work that fails": fails, "a budget nobody has": isTooDear,
					"text that a line cannot hold": isLong, "a cancellation": isCancelled,
				} {
					t.Run(who.name()+" to "+worker+"/"+rule, func(t *testing.T) { behaves(t, h, who, worker) })
				}
			}
			t.Run(who.name()+"/work that nobody offers", func(t *testing.T) {
				require.Equal(t, "unsupported", who.ask(t, question{work: "fly", do: "ok"}).state)
			})
		}
	})
}

// The behaviours.
func isDone(t *testing.T, h *babel, who asker, worker string) {
	got := who.ask(t, question{work: worker, do: "ok", budget: 100})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, "n is 5", got.text)
	require.EqualValues(t, 30, h.detail(t, got.task).Tokens, "its agent has used so many")
}

func isFollowed(t *testing.T, h *babel, who asker, worker string) {
	got := who.ask(t, question{work: worker, do: "progress"})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, "half of it", h.detail(t, got.task).StepName)
}

func fails(t *testing.T, h *babel, who asker, worker string) {
	got := who.ask(t, question{work: worker, do: "fail"})
	require.Equal(t, "failed", got.state, "%+v", got)
	require.Equal(t, "failed", h.detail(t, got.task).State)
}

func isTooDear(t *testing.T, _ *babel, who asker, worker string) {
	require.Equal(t, "too dear", who.ask(t, question{work: worker, do: "ok", budget: 9000}).state)
}

// long1 is what no line of the pipe protocol can hold.
const long1 = "a | b > c \"d\"\n"

func isLong(t *testing.T, _ *babel, who asker, worker string) {
	if worker == "websocket" || worker == "tcp" { // they say what fits into a line
		return
	}
	got := who.ask(t, question{work: worker, do: "long"})
	require.Equal(t, "done", got.state, "%+v", got)
	require.Equal(t, strings.Repeat(long1, 300), got.text)
}

func isCancelled(t *testing.T, h *babel, who asker, worker string) {
	got := who.ask(t, question{work: worker, do: "hang", cancel: h.begun})
	require.Equal(t, "cancelled", h.detail(t, got.task).State)
	require.Equal(t, worker, <-h.ended, "the worker is told")
}

// question is what is asked for.
type question struct {
	work, do string
	budget   int64
	// cancel takes it back once it receives.
	cancel <-chan string
}

// outcome is what came of it, in words that are of no dialect.
type outcome struct{ state, text, task string }

// asker asks in one dialect.
type asker interface {
	name() string
	ask(t *testing.T, q question) outcome
}

// babel is a house with a worker of each kind. Each is told of work that it hangs at,
// and that it was told to end.
type babel struct {
	*client
	text         string // where TCP is taken
	begun, ended chan string
}

type tongue struct {
	State, ID string
	StepName  string `json:"step_name"`
	Tokens    int64
}

func (h *babel) detail(t *testing.T, task string) tongue {
	t.Helper()
	return get[tongue](t, h.client, "/api/v1/tasks/"+task)
}

func (h *babel) askers() []asker { return []asker{restAsker{h}, envelopeAsker{h}, pipeAsker{h}} }

// inBabel runs a test in such a house on every database.
func inBabel(t *testing.T, fn func(t *testing.T, h *babel)) {
	t.Helper()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := configured(t, name)
			cfg.Links.V5Listen = "127.0.0.1:0"
			a, err := app.New(t.Context(), cfg, nil)
			require.NoError(t, err)
			require.NoError(t, a.Start(t.Context()))
			t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
			h := &babel{newClient(t, a.URL(), adminToken(t, cfg.Data)), a.V5Addr(), make(chan string, 100), make(chan string, 100)}
			h.goWorker(t, "envelope", comet.DialectEnvelope)
			h.goWorker(t, "lines", comet.DialectV5)
			h.pipeWorker(t, "websocket")
			h.pipeWorker(t, "tcp")
			fn(t, h)
		})
	}
}

// hired registers an agent of small means and returns its token.
func (h *babel) hired(t *testing.T, id string) string {
	t.Helper()
	status, body, err := h.do(t.Context(), http.MethodPost, "/api/v1/agents", map[string]any{
		"id": id, "name": id, "level": 2, "parent_id": "orch-my-team", "sphere_id": 8, "frequency_hz": 555,
		"capabilities": []string{"custom:" + id}, "type": "infra", "token_budget": 5000,
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	return h.tokenOf(t, id)
}

// goWorker is one of the package agent.
func (h *babel) goWorker(t *testing.T, id, dialect string) {
	t.Helper()
	a, err := comet.New(h.url, h.hired(t, id), &comet.Options{Dialect: dialect, Concurrency: 4, Drain: -1})
	require.NoError(t, err)
	a.Handle(id, func(ctx context.Context, w *comet.Work) (comet.Result, error) {
		var p struct {
			Do string
			N  int
		}
		if err := w.Decode(&p); err != nil {
			return comet.Result{}, err
		}
		switch p.Do {
		case "ok":
			w.Tokens(30)
		case "progress":
			if err := w.Progress(50, "half of it"); err != nil {
				return comet.Result{}, err
			}
		case "fail":
			return comet.Result{ExitCode: 3, Output: "no luck"}, nil
		case "long":
			return comet.Result{Output: strings.Repeat(long1, 300)}, nil
		case "hang":
			h.begun <- id
			<-ctx.Done()
			h.ended <- id
			return comet.Result{}, context.Cause(ctx)
		}
		return comet.Result{Output: fmt.Sprint("n is ", p.N)}, nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	eventually(t, func() bool { return h.online(t, id) }, "the worker is there")
}

// pipeLine is a line of the pipe protocol, over TCP or a WebSocket.
type pipeLine struct {
	send  func(line string) error
	next  func() (string, error)
	close func()
}

func (h *babel) dial(t *testing.T, kind, token string) pipeLine {
	t.Helper()
	if kind == "tcp" {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", h.text)
		require.NoError(t, err)
		in := bufio.NewReader(conn)
		return pipeLine{
			func(line string) error { _, err := io.WriteString(conn, line+"\n"); return err },
			func() (string, error) { line, err := in.ReadString('\n'); return strings.TrimSuffix(line, "\n"), err },
			func() { _ = conn.Close() },
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	conn, resp, err := websocket.Dial(ctx, h.url+"/api/agent/connect", &websocket.DialOptions{
		Subprotocols: []string{"v5"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	require.NoError(t, err)
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	require.Equal(t, "v5", conn.Subprotocol())
	return pipeLine{
		func(line string) error { return conn.Write(ctx, websocket.MessageText, []byte(line)) },
		func() (string, error) { _, line, err := conn.Read(ctx); return string(line), err },
		cancel,
	}
}

// pipeWorker is a worker as simple as one can be: it says J, and answers what comes.
func (h *babel) pipeWorker(t *testing.T, kind string) {
	t.Helper()
	token := h.hired(t, kind)
	line := h.dial(t, kind, token)
	join := "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=custom:" + kind + ";places=4"
	if kind == "tcp" {
		join += ";token=" + token
	}
	require.NoError(t, line.send(join))
	first, err := line.next()
	require.NoError(t, err)
	require.Contains(t, first, "|A|T0|")
	require.NotContains(t, first, token)
	joined, err := pipe.Parse(first)
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for n := 2; ; n++ {
			text, err := line.next()
			if err != nil {
				return
			}
			m, err := pipe.Parse(text)
			if err != nil {
				h.ended <- "a line that is none: " + text
				return
			}
			for _, answer := range h.respond(kind, m) {
				answer.From, answer.To, answer.Number = joined.To, m.From, n
				said, err := pipe.Format(answer)
				if err == nil {
					err = line.send(said)
				}
				if err != nil {
					h.ended <- err.Error()
				}
			}
		}
	})
	t.Cleanup(func() {
		line.close()
		running.Wait()
	})
	eventually(t, func() bool { return h.online(t, kind) }, "the worker over "+kind+" is there")
}

// respond is what the worker says to a message.
func (h *babel) respond(kind string, m pipe.Message) []pipe.Message {
	say := func(t pipe.Type, s pipe.State, data string) pipe.Message {
		out := pipe.Reply(m, m.To, 1, t, pipe.Data(data))
		out.State = s
		return out
	}
	if m.Type == pipe.Update && m.State == pipe.Cancelled {
		h.ended <- kind
		return nil
	}
	if m.Type != pipe.Request {
		return nil
	}
	do, _ := m.Data.Get("do")
	n, _ := m.Data.Get("n")
	switch do {
	case "ok":
		done := say(pipe.Success, pipe.Done, "n is "+n)
		if left, ok := m.Budget.Tokens(); ok {
			done.Budget = pipe.BudgetOf(int64(left) - 30)
		}
		return []pipe.Message{done}
	case "progress":
		return []pipe.Message{say(pipe.Update, pipe.Running, "progress=50%;step=half of it"), say(pipe.Success, pipe.Done, "n is "+n)}
	case "hang":
		h.begun <- kind
		return []pipe.Message{say(pipe.Ack, pipe.Running, "-")}
	}
	failed := say(pipe.Failure, pipe.Failed, "desc=no luck")
	failed.Err = pipe.E99
	return []pipe.Message{failed}
}

// restAsker asks over the neutral API.
type restAsker struct{ h *babel }

func (restAsker) name() string { return "REST" }

func (a restAsker) ask(t *testing.T, q question) outcome {
	t.Helper()
	body := map[string]any{"capabilities": []string{"custom:" + q.work}, "parameters": map[string]any{"do": q.do, "n": 5}}
	if q.budget > 0 {
		body["budget"] = q.budget
	}
	header := []string{"Prefer", "wait=30"}
	if q.cancel != nil {
		header = nil
	}
	status, raw, err := a.h.do(t.Context(), http.MethodPost, "/api/v1/tasks", body, header...)
	require.NoError(t, err)
	switch status {
	case http.StatusTooManyRequests:
		return outcome{state: "too dear"}
	case http.StatusUnprocessableEntity:
		return outcome{state: "unsupported"}
	}
	var task tongue
	require.NoError(t, json.Unmarshal(raw, &task), "%s", raw)
	if q.cancel != nil {
		<-q.cancel
		status, raw, err := a.h.do(t.Context(), http.MethodPost, "/api/v1/tasks/"+task.ID+"/cancel", nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "%s", raw)
		return outcome{task: task.ID}
	}
	_, text, err := a.h.do(t.Context(), http.MethodGet, "/api/v1/tasks/"+task.ID+"/output", nil)
	require.NoError(t, err)
	return outcome{task.State, string(text), task.ID}
}

// envelopeAsker asks with a work_request.
type envelopeAsker struct{ h *babel }

func (envelopeAsker) name() string { return "envelope" }

func (a envelopeAsker) ask(t *testing.T, q question) outcome {
	t.Helper()
	id := uuid.NewString()
	payload := map[string]any{"task_id": id, "work_type": q.work, "parameters": map[string]any{"do": q.do, "n": 5}}
	if q.budget > 0 {
		payload["hints"] = map[string]any{"max_tokens": q.budget}
	}
	header := []string{"Prefer", "wait=30"}
	if q.cancel != nil {
		header = nil
	}
	_, raw, err := a.h.do(t.Context(), http.MethodPost, "/api/agent/message", letter("orchestrator", "infra", "work_request", payload), header...)
	require.NoError(t, err)
	if q.cancel != nil {
		<-q.cancel
		_, _, err := a.h.do(t.Context(), http.MethodPost, "/api/agent/message", letter("orchestrator", "infra", "work_request", map[string]any{
			"task_id": id, "work_type": "cancel_task", "parameters": map[string]any{},
		}))
		require.NoError(t, err)
		return outcome{task: id}
	}
	var answer struct {
		Payload struct {
			Status, Output string
			Code           int `json:"error_code"`
		}
	}
	require.NoError(t, json.Unmarshal(raw, &answer), "%s", raw)
	switch p := answer.Payload; {
	case p.Code == 5005:
		return outcome{state: "too dear"}
	case p.Code == 5006:
		return outcome{state: "unsupported"}
	case p.Status == "success":
		return outcome{"done", p.Output, id}
	default:
		return outcome{p.Status, p.Output, id}
	}
}

// pipeAsker asks as the User of the pipe protocol.
type pipeAsker struct{ h *babel }

func (pipeAsker) name() string { return "pipe" }

// say posts one line and returns the lines that answer it.
func (a pipeAsker) say(t *testing.T, line string, wait bool) (answers []pipe.Message, location string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.h.url+"/api/v5/messages", bytes.NewBufferString(line))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+a.h.token)
	r.Header.Set("Content-Type", "text/plain")
	if wait {
		r.Header.Set("Prefer", "wait=30")
	}
	resp, err := a.h.http.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		m, err := pipe.Parse(in.Text())
		require.NoError(t, err, in.Text())
		answers = append(answers, m)
	}
	require.NoError(t, in.Err())
	return answers, resp.Header.Get("Location")
}

func (a pipeAsker) ask(t *testing.T, q question) outcome {
	t.Helper()
	budget := pipe.Budget{}
	if q.budget > 0 {
		budget = pipe.BudgetOf(q.budget)
	}
	answers, location := a.say(t, fmt.Sprintf("M1|User>O1|R|-|P1|N|-|0|-|%s|call=%s;do=%s;n=5", budget, q.work, q.do), q.cancel == nil)
	first, last := answers[0], answers[len(answers)-1]
	task := strings.TrimPrefix(location, "/api/v1/tasks/")
	if q.cancel != nil {
		<-q.cancel
		gone, _ := a.say(t, fmt.Sprintf("M2|User>O1|U|%s|P1|X|-|0|%s|-|reason=changed my mind", first.Task, first.Context), false)
		require.Equal(t, pipe.Ack, gone[0].Type, "%+v", gone)
		return outcome{task: task}
	}
	switch {
	case last.Err == pipe.E17:
		return outcome{state: "too dear"}
	case last.Err == pipe.E19:
		return outcome{state: "unsupported"}
	case last.Type == pipe.Failure:
		return outcome{"failed", string(last.Data), task}
	}
	require.Equal(t, pipe.Success, last.Type, "%+v", answers)
	if ref, ok := last.Data.Get("src"); ok {
		return outcome{"done", a.fetch(t, last, ref), task}
	}
	return outcome{"done", string(last.Data), task}
}

// fetch reads what a reference stands for, page by page.
func (a pipeAsker) fetch(t *testing.T, m pipe.Message, ref string) string {
	t.Helper()
	var all strings.Builder
	for page, of := 1, 1; page <= of; page++ {
		answers, _ := a.say(t, fmt.Sprintf("M3|User>O1|Q|%s|P1|-|-|0|%s|-|ref=%s;page=%d", m.Task, m.Context, ref, page), false)
		require.Equal(t, pipe.Success, answers[0].Type, "%+v", answers)
		data := answers[0].Data
		count, _ := data.Get("of")
		var err error
		of, err = strconv.Atoi(count)
		require.NoError(t, err)
		text, _ := data.Get("text")
		if enc, _ := data.Get("enc"); enc == "base64" {
			raw, err := base64.StdEncoding.DecodeString(text)
			require.NoError(t, err)
			text = string(raw)
		}
		all.WriteString(text)
	}
	return all.String()
}
