package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/agent"
	"comet/api"
	"comet/internal/auth"
	"comet/internal/background"
	"comet/internal/bus"
	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	v5 "comet/internal/protocol/v5"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/telemetry"
	"comet/internal/transport"
	"comet/models"
	"comet/store"
	"comet/webhooks"
)

const (
	holders        = 100 // agents with the capability
	baselineWriter = "the writer alone, same rows"
)

// taskServer is a server with the orchestrator and the connections of agents.
type taskServer struct {
	*testServer
	auth *auth.Auth
	work *orchestrator.Orchestrator
	bus  *bus.Bus
	url  string

	connections *transport.Server
}

func openTaskServer(b *testing.B, database string) *taskServer {
	b.Helper()
	return openTaskServerWith(b, database, true)
}

// openTaskServerWith starts a server with or without the V5 message log.
func openTaskServerWith(b *testing.B, database string, logs bool) *taskServer {
	b.Helper()
	m := &taskServer{testServer: newServer(b, newDatabase(b, database))}
	m.auth = auth.New(m.store, nil)
	_, err := m.auth.EnsureAdmin(b.Context(), adminToken, true)
	require.NoError(b, err)
	feed := events.NewFeed(m.store, nil)
	m.work = orchestrator.New(m.store, m.ledger, &orchestrator.Options{
		Classes: map[string]orchestrator.Policy{envelope.Class: envelope.Policy(), v5.Class: v5.Policy()}, Registry: m.registry, Feed: feed, MaxQueue: 1 << 30, MaxWaiters: 1 << 30, MaxWaitersPerToken: 1 << 30,
	})
	runner := jobs.New(m.store, nil)
	m.work.RegisterJobs(runner)
	m.bus, err = bus.New(nil)
	require.NoError(b, err)
	messages := messagelog.New(m.store, nil)
	options := v5.Options{MessageLog: messages}
	if !logs {
		options.MessageLog = nil
	}
	protocols := []protocol.Protocol{envelope.New(m.work, nil), v5.New(m.work, m.store, &options)}
	connections := transport.New(transport.Core{Work: m.work, Auth: m.auth, Bus: m.bus, Protocols: protocols}, nil)
	var all background.Group
	all.Add("bus", m.bus)
	all.Add("relay", events.NewRelay(m.store, feed, nil))
	all.Add("work", m.work)
	all.Add("jobs", runner)
	all.Add("message log", messages)
	all.Add("connections", connections)
	require.NoError(b, all.Start(b.Context()))
	b.Cleanup(func() { require.NoError(b, all.Stop(detached())) })
	require.Eventually(b, func() bool { return m.work.Check(b.Context()) == nil }, time.Minute, time.Millisecond)
	metrics := telemetry.NewMetrics(telemetry.Build{})
	core := api.Services{Registry: m.registry, Auth: m.auth, Usage: m.ledger, Webhooks: webhooks.New(m.store, nil), Orchestrator: m.work, Feed: feed}
	handler := api.New(core, &api.Options{
		Logger: accessLog(b), Measure: metrics.Measure(routePattern), Untimed: connections.IsStreaming, MountPublic: func(r chi.Router) { connections.Mount(r) },
	})
	m.chain = serve(b, handler)
	b.Cleanup(func() {
		connections.Drain()
		handler.Drain()
	})
	m.url, m.connections = "http://"+m.chain, connections
	return m
}

// registerWorker registers an agent with the capability and returns its token.
func (m *taskServer) registerWorker(b *testing.B, id string) (token string) {
	b.Helper()
	return m.registerWorkerFor(b, id, "run_playbook")
}

func (m *taskServer) registerWorkerFor(b *testing.B, id, capability string) (token string) {
	b.Helper()
	require.NoError(b, m.store.Write(b.Context(), func(tx *store.Tx) error {
		a := seedAgent(tx.Now(), id, "orch-my-team", models.LevelSpecialist, 8, 1)
		a.Type, a.FrequencyHz, a.Capabilities = "infra", 555, []string{capability}
		return tx.Agents().Insert(a)
	}))
	require.NoError(b, m.work.ReindexAgent(b.Context(), id))
	return m.issueToken(b, id, models.ScopeAgentsRead)
}

func (m *taskServer) issueToken(b *testing.B, agentID string, scopes ...models.Scope) string {
	b.Helper()
	issued, err := m.auth.Create(b.Context(), models.System(), auth.TokenDraft{Name: &agentID, Scopes: scopes, AgentID: &agentID}, nil)
	require.NoError(b, err)
	return issued.Secret
}

func workRequest(task uuid.UUID) []byte {
	return fmt.Appendf(nil, `{"protocol_version":"1.0","message_id":"%s","from_agent":"orchestrator","to_agent":"infra","timestamp":"2026-01-19T04:21:04Z",`+
		`"trace_id":"%s","request_id":"%s","type":"work_request","payload":{"task_id":"%s","work_type":"run_playbook","parameters":{"playbook":"deploy_kuma.yml",`+
		`"extra_vars":{"version":"1.4.0"}},"hints":{"max_duration_seconds":3600,"max_memory_mb":512}},"x_custom_fields":{}}`,
		uuid.New(), uuid.New(), uuid.New(), task)
}

// BenchmarkAccept measures work_requests, which are durable and assigned before the response,
// against the group writer with the same rows.
func BenchmarkAccept(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		m := measurement{what: "work_requests accepted, " + database, against: []comparison{{subject: baselineWriter, metric: "of_writer"}}}
		if database == sqlite {
			m.against[0].aim = 0.6
		}
		m.open = func(b *testing.B) []*subject {
			b.Helper()
			h := openTaskServer(b, database)
			for n := range holders {
				id := fmt.Sprintf("holder-%03d", n)
				h.registerWorker(b, id)
				_, err := h.work.Join(b.Context(), id, orchestrator.JoinRequest{Protocol: envelope.Name, Transport: "push", Concurrency: orchestrator.MaxConcurrency})
				require.NoError(b, err)
			}
			callers := newCallers(b, h.chain, writers)
			return []*subject{
				{name: "ours", callers: writers, slice: writeSlice, do: func(c, _ int) error {
					status, body, err := callers[c].exchange(post("/api/agent/message", adminToken, workRequest(uuid.New())))
					if err == nil && status != http.StatusAccepted {
						err = fmt.Errorf("%d %s", status, body)
					}
					return err
				}},
				{name: baselineWriter, callers: writers, slice: writeSlice, do: h.sameRows},
			}
		}
		b.Run("message", func(b *testing.B) { results = append(results, m.run(b)...) })
	})
	printTable(os.Stdout, fmt.Sprintf("%d agents with the capability, %d callers.", holders, writers), results)
}

// sameRows writes the rows of an accepted work_request.
func (m *taskServer) sameRows(caller, turn int) error {
	return m.store.Write(detached(), func(tx *store.Tx) error {
		id, agentID := uuid.NewString(), fmt.Sprintf("holder-%03d", (caller*7+turn)%holders)
		in := models.TaskInput{
			TaskID: id, Capabilities: []string{"run_playbook"}, AgentType: "infra",
			Parameters: json.RawMessage(`{"playbook":"deploy_kuma.yml","extra_vars":{"version":"1.4.0"}}`), Policy: json.RawMessage(`{"timeout_ms":3600000}`),
			Meta: json.RawMessage(`{"trace_id":"550e8400-e29b-41d4-a716-446655440002","request_id":"550e8400-e29b-41d4-a716-446655440003","from":"orchestrator",` +
				`"to":"infra","message_id":"550e8400-e29b-41d4-a716-446655440001","max_duration_seconds":3600,"max_memory_mb":512,"x_custom_fields":{}}`),
			Trace: "00-550e8400e29b41d4a716446655440002-a716446655440001-01",
		}
		now := tx.Now()
		t := models.Task{
			ID: id, Class: envelope.Class, Owner: "bootstrap-admin", QueueKey: "0123456789abcdef0123456789abcdef", Priority: 1, State: models.TaskNew,
			Attempt: 1, AgentID: agentID, Deadline: now.Add(time.Hour), CreatedAt: now, UpdatedAt: now, Version: 1, Decision: decision(),
		}
		if _, _, err := tx.Workers().ClaimSlot(agentID, true); err != nil {
			return err
		}
		t.AttemptState, t.AssignedAt, t.MessageID = models.AttemptAssigned, now, uuid.NewString()
		if err := tx.Tasks().Insert(t, in, store.TaskRequest{Owner: "bootstrap-admin", RequestID: uuid.NewString()}); err != nil {
			return err
		}
		return tx.Events().Emit(events.TaskCreated, id, orchestrator.TaskChanged{TaskID: id, State: t.State, Attempt: 1, AgentID: agentID, Version: 1})
	})
}

// decision has the size of a stored decision with ten candidates.
func decision() json.RawMessage {
	var all []map[string]any
	for n := range 10 {
		all = append(all, map[string]any{"agent_id": fmt.Sprintf("holder-%03d", n), "score": 1, "load": 0})
	}
	text, _ := json.Marshal(map[string]any{"verdict": "chosen", "considered": 100, "eligible": 100, "candidates": all})
	return text
}

const (
	roundTrips    = 1000 // per second
	roundTripTime = 2 * time.Second
)

// BenchmarkRoundTrip measures, at 1,000 per second, from the POST of a work_request through a
// worker on a WebSocket to the response with the result, against its minimum: three group
// commits at the same rate and one round trip on the bus.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		m := openTaskServer(b, sqlite)
		a, err := agent.New(m.url, m.registerWorker(b, "worker"), &agent.Options{Concurrency: 256, Drain: -1})
		require.NoError(b, err)
		a.Handle("run_playbook", func(context.Context, *agent.Work) (agent.Result, error) { return agent.Result{Output: "done"}, nil })
		ctx, cancel := context.WithCancel(detached())
		var running sync.WaitGroup
		running.Go(func() { _ = a.Run(ctx) })
		b.Cleanup(func() {
			cancel()
			running.Wait()
		})
		require.Eventually(b, func() bool {
			w, err := m.work.Worker(b.Context(), "worker")
			return err == nil && w.State == models.WorkerOnline
		}, time.Minute, time.Millisecond)
		echo, err := m.bus.Subscribe("bench.echo", func(msg bus.Message) { _ = msg.Respond(msg.Data) })
		require.NoError(b, err)
		b.Cleanup(echo.Unsubscribe)
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}
		b.Cleanup(client.CloseIdleConnections)

		rates := []int{roundTrips / 10, roundTrips / 2, roundTrips}
		rounds := map[int][]round{}
		for b.Loop() {
			for _, rate := range rates {
				rounds[rate] = append(rounds[rate], round{
					trips:   paced(b, rate, func() error { return m.roundTrip(client) }),
					commits: paced(b, 3*rate, m.oneRow),
					notes:   paced(b, rate, func() error { _, err := m.bus.Request(ctx, "bench.echo", []byte("note")); return err }),
				})
			}
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		_, _ = fmt.Fprintln(w, "\nFrom POST over a worker at a WebSocket to the result, SQLite; against three group commits and one NATS request.")
		_, _ = fmt.Fprintln(w, "a second\tp50\tp99\tone commit p50\tp99\tNATS p50\tratio of p50\taim\t")
		for _, rate := range rates {
			b.ReportMetric(report(w, rate, rounds[rate]), fmt.Sprintf("of_parts_at_%d", rate))
		}
		_ = w.Flush()
	})
}

// round holds the durations of one round.
type round struct{ trips, commits, notes []time.Duration }

// report prints a row of the table and returns the median ratio over the rounds.
func report(w io.Writer, rate int, all []round) float64 {
	var together round
	var ratios []float64
	for _, r := range all {
		ratios = append(ratios, float64(at(r.trips, .5))/float64(3*at(r.commits, .5)+at(r.notes, .5)))
		together.trips = append(together.trips, r.trips...)
		together.commits = append(together.commits, r.commits...)
		together.notes = append(together.notes, r.notes...)
	}
	slices.Sort(ratios)
	ratio, aim := ratios[len(ratios)/2], ""
	if rate == roundTrips {
		aim = "≤ 1.50"
	}
	_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%.2f\t%s\t\n", rate, at(together.trips, .5), at(together.trips, .99),
		at(together.commits, .5), at(together.commits, .99), at(together.notes, .5), ratio, aim)
	return ratio
}

func (m *taskServer) roundTrip(client *http.Client) error {
	r, err := http.NewRequestWithContext(detached(), http.MethodPost, m.url+"/api/agent/message", bytes.NewReader(workRequest(uuid.New())))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Prefer", "wait=30")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", resp.StatusCode, body)
	}
	return err
}

// oneRow is the smallest group commit.
func (m *taskServer) oneRow() error {
	return m.store.Write(detached(), func(tx *store.Tx) error {
		_, err := tx.Inbox().MarkProcessed("bench", uuid.NewString())
		return err
	})
}

// paced calls fn at a fixed rate, independent of the completion of earlier calls, and returns the
// durations.
func paced(b *testing.B, rate int, do func() error) []time.Duration {
	b.Helper()
	n := int(roundTripTime.Seconds() * float64(rate))
	took := make([]time.Duration, n)
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	begun := time.Now()
	for i := range n {
		if early := time.Until(begun.Add(time.Duration(i) * time.Second / time.Duration(rate))); early > 0 {
			<-time.After(early)
		}
		running.Go(func() {
			from := time.Now()
			if err := do(); err != nil {
				failed.Store(&err)
			}
			took[i] = time.Since(from)
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		require.NoError(b, *err)
	}
	return took
}

func at(all []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(float64(len(sorted)-1)*part)].Round(time.Microsecond)
}
