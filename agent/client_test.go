package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/agent"
	"comet/internal/wire/envelope"
)

// fakeServer returns the responses in order, and the last one again and again.
func fakeServer(t *testing.T, answers ...func(w http.ResponseWriter, e envelope.Envelope)) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		e, err := envelope.Parse(data)
		if err != nil {
			t.Errorf("invalid envelope: %s", err)
		}
		answers[min(int(asked.Add(1)), len(answers))-1](w, e)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func replies(status int, p func(task uuid.UUID) envelope.Payload) func(w http.ResponseWriter, e envelope.Envelope) {
	return func(w http.ResponseWriter, e envelope.Envelope) {
		data, _ := envelope.Format(envelope.Reply(e, uuid.New(), time.Now(), p(e.Payload.(envelope.WorkRequest).TaskID)))
		w.WriteHeader(status)
		_, _ = w.Write(data)
	}
}

func running(task uuid.UUID) envelope.Payload {
	return envelope.WorkStatus{TaskID: task, Status: envelope.StatusRunning}
}

func hello(task uuid.UUID) envelope.Payload {
	return envelope.WorkResult{TaskID: task, Status: envelope.OutcomeSuccess, Output: "hello"}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAwait(t *testing.T) {
	t.Parallel()

	t.Run("sends the same request until the task has ended", func(t *testing.T) {
		t.Parallel()
		var ids []uuid.UUID
		noting := func(next func(http.ResponseWriter, envelope.Envelope)) func(http.ResponseWriter, envelope.Envelope) {
			return func(w http.ResponseWriter, e envelope.Envelope) {
				ids = append(ids, e.RequestID)
				next(w, e)
			}
		}
		url, _ := fakeServer(t, noting(replies(202, running)),
			noting(func(w http.ResponseWriter, _ envelope.Envelope) { w.WriteHeader(502) }), noting(replies(200, hello)))
		c, err := agent.NewClient(url, "secret", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
		require.NoError(t, err)
		r := &agent.Request{WorkType: "echo"}
		got, err := c.Await(t.Context(), r)
		require.NoError(t, err)
		require.True(t, got.Succeeded)
		require.Equal(t, "hello", got.Output)
		require.Equal(t, []uuid.UUID{r.RequestID, r.RequestID, r.RequestID}, ids)
	})

	t.Run("returns an error envelope as the end", func(t *testing.T) {
		t.Parallel()
		url, asked := fakeServer(t, replies(503, func(uuid.UUID) envelope.Payload { return envelope.Unavailable("infra", nil) }))
		c, err := agent.NewClient(url, "secret", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
		require.NoError(t, err)
		got, err := c.Await(t.Context(), &agent.Request{WorkType: "echo"})
		require.NoError(t, err)
		require.True(t, got.Ended)
		require.Equal(t, 5002, got.Code)
		require.JSONEq(t, `{"agent_id":"infra","last_heartbeat":null}`, string(got.Context))
		require.EqualValues(t, 1, asked.Load())
	})

	t.Run("retries while the server is unavailable", func(t *testing.T) {
		t.Parallel()
		itself := func(uuid.UUID) envelope.Payload { return envelope.Unavailable(envelope.Orchestrator, nil) }
		unavailable := func(uuid.UUID) envelope.Payload { return envelope.Unavailable("infra", nil) }
		for name, c := range map[string]struct {
			header, value string
			status        int
			says          func(uuid.UUID) envelope.Payload
			ended         bool
			after         time.Duration
		}{
			"5002 of the orchestrator":            {"Content-Type", "application/json", 503, itself, false, 0},
			"unavailable with Retry-After":        {"Retry-After", "2", 503, itself, false, 2 * time.Second},
			"503 and when to come again":          {"Retry-After", "2", 503, unavailable, false, 2 * time.Second},
			"a body that arrives too slowly":      {"Content-Type", "application/json", 408, itself, false, 0},
			"rate limited":                        {"Retry-After", "3", 429, itself, false, 3 * time.Second},
			"a task without any agent":            {"Location", "/api/v1/tasks/1", 503, itself, true, 0},
			"a task without an agent of its type": {"Location", "/api/v1/tasks/1", 503, unavailable, true, 0},
			"a task that ended at a limit":        {"Retry-After", "2", 429, func(uuid.UUID) envelope.Payload { return envelope.ResourceLimit("token_budget", 1, 2) }, true, 0},
		} {
			url, asked := fakeServer(t, func(w http.ResponseWriter, e envelope.Envelope) {
				w.Header().Set(c.header, c.value)
				replies(c.status, c.says)(w, e)
			})
			client, err := agent.NewClient(url, "secret", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
			require.NoError(t, err)
			got, err := client.Send(t.Context(), &agent.Request{WorkType: "echo"}, 0)
			require.EqualValues(t, 1, asked.Load(), name)
			require.Equal(t, c.ended, got.Ended, name)
			if c.ended {
				require.NoError(t, err, name)
				continue
			}
			var refused *agent.ResponseError
			require.ErrorAs(t, err, &refused, name)
			require.Equal(t, agent.ResponseError{Status: c.status, Code: 5002, Detail: "Agent unavailable", RetryAfter: c.after}, *refused, name)
		}
	})

	for name, ask := range map[string]func(*agent.Client, context.Context, *agent.Request) (agent.Response, error){
		"Submit": (*agent.Client).Submit, "Await": (*agent.Client).Await,
	} {
		t.Run(name+" retries through restarts and obeys Retry-After", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var at []time.Duration
				c, err := agent.NewClient("http://server", "secret", &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					at = append(at, time.Since(began).Truncate(time.Second))
					w := httptest.NewRecorder()
					data, err := io.ReadAll(r.Body)
					if err != nil {
						return nil, err
					}
					e, err := envelope.Parse(data)
					switch len(at) {
					case 1:
						w.Header().Set("Retry-After", "100")
						replies(503, func(uuid.UUID) envelope.Payload { return envelope.Unavailable(envelope.Orchestrator, nil) })(w, e)
					case 2: // a proxy in front of the server
						w.Header().Set("Retry-After", time.Now().Add(200*time.Second).UTC().Format(http.TimeFormat))
						w.WriteHeader(503)
					default:
						replies(200, hello)(w, e)
					}
					return w.Result(), err
				})})
				require.NoError(t, err)
				got, err := ask(c, t.Context(), &agent.Request{WorkType: "echo"})
				require.NoError(t, err)
				require.True(t, got.Succeeded)
				require.Equal(t, []time.Duration{0, 100 * time.Second, 300 * time.Second}, at)
			})
		})
	}

	t.Run("Submit returns when the server has accepted the task", func(t *testing.T) {
		t.Parallel()
		url, asked := fakeServer(t, replies(202, running))
		c, err := agent.NewClient(url, "secret", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
		require.NoError(t, err)
		got, err := c.Submit(t.Context(), &agent.Request{WorkType: "echo"})
		require.NoError(t, err)
		require.False(t, got.Ended)
		require.EqualValues(t, 1, asked.Load())
	})

	t.Run("an invalid token is an error", func(t *testing.T) {
		t.Parallel()
		url, asked := fakeServer(t, replies(401, func(uuid.UUID) envelope.Payload { return envelope.AuthenticationFailed("infra") }))
		c, err := agent.NewClient(url, "wrong", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
		require.NoError(t, err)
		_, err = c.Await(t.Context(), &agent.Request{WorkType: "echo"})
		var refused *agent.ResponseError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, 401, refused.Status)
		require.EqualValues(t, 1, asked.Load())
	})

	t.Run("an invalid request is not sent", func(t *testing.T) {
		t.Parallel()
		c, err := agent.NewClient("http://127.0.0.1:1", "secret", nil)
		require.NoError(t, err)
		_, err = c.Await(t.Context(), &agent.Request{WorkType: "no such\nthing"})
		require.ErrorContains(t, err, "payload.work_type must be")
	})
}

func TestFollow(t *testing.T) {
	t.Parallel()
	states := []string{`{"id":"x","state":"new","waiting_for":"worker","version":1}`, `{"id":"x","state":"new","waiting_for":"worker","version":1}`,
		`{"id":"x","state":"running","waiting_for":null,"progress":40,"step_name":"pulling","version":2}`, `{"id":"x","state":"done","progress":100,"exit_code":0,"version":5}`}
	var asked, read atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("stream") != "log" {
			_, _ = io.WriteString(w, states[min(int(asked.Add(1)), len(states))-1])
			return
		}
		if read.Add(1) == 1 { // cut off in the middle
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "one ")
			return
		}
		if r.URL.Query().Get("from") == "4" {
			_, _ = io.WriteString(w, "two")
		}
	}))
	t.Cleanup(s.Close)
	c, err := agent.NewClient(s.URL, "secret", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	require.NoError(t, err)
	var seen []string
	last, err := c.Follow(t.Context(), uuid.New(), func(t agent.Task) error {
		seen = append(seen, fmt.Sprint(t.State, " ", t.WaitingFor, " ", t.Progress, " ", t.StepName))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"new worker 0 ", "running  40 pulling", "done  100 "}, seen)
	require.Equal(t, 0, *last.ExitCode)
	var out bytes.Buffer
	require.NoError(t, c.Log(t.Context(), uuid.New(), &out))
	require.Equal(t, "one two", out.String())
}

// An agent with one work type. It runs until its context ends.
func Example() {
	a, err := agent.New("http://127.0.0.1:8080", "the token of an agent", &agent.Options{Concurrency: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	a.Handle("greet", func(_ context.Context, w *agent.Work) (agent.Result, error) {
		var p struct{ Name string }
		if err := w.Decode(&p); err != nil {
			return agent.Result{}, err
		}
		if err := w.Progress(50, "finding the words"); err != nil {
			return agent.Result{}, err
		}
		_, err := fmt.Fprintln(w, "output is sent while the work runs")
		return agent.Result{Output: "hello " + p.Name}, err
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a program would stop it with a signal
	fmt.Println(a.Run(ctx))
	// Output: <nil>
}

// Submit a task and wait for its end.
func ExampleClient_Await() {
	// A server on which every task succeeds at once.
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		e, _ := envelope.Parse(data)
		answer, _ := envelope.Format(envelope.Reply(e, uuid.New(), time.Now(), hello(e.Payload.(envelope.WorkRequest).TaskID)))
		_, _ = w.Write(answer)
	}))
	defer s.Close()

	c, err := agent.NewClient(s.URL, "a token with messages:send", s.Client())
	if err != nil {
		fmt.Println(err)
		return
	}
	reply, err := c.Await(context.Background(), &agent.Request{
		To: "infra", WorkType: "greet", Parameters: json.RawMessage(`{"name":"world"}`), Hints: agent.Hints{MaxDuration: time.Minute},
	})
	fmt.Println(reply.Succeeded, reply.Output, err)
	// Output: true hello <nil>
}
