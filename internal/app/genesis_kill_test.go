package app_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/bus/bustest"
	"comet/internal/testkit/loopback"
	"comet/store/storetest"
)

// TestGenesisSurvivesKill9 kills a server repeatedly while clients send signed REQUESTs and exactly-once EVENTs over Genesis, and
// workers send PARTIAL and final RESPONSEs: a single server on SQLite, and one of three replicas on PostgreSQL. Every REQUEST has
// one task with one result that is charged once; its partial results are stored, streamed and delivered in order, without
// gaps and repetitions; every EVENT has one effect on each receiver.
func TestGenesisSurvivesKill9(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGenesisRun(t, name)
			for range kills(t) {
				target := g.acts.Load() + 1 + rand.Int64N(100)
				eventually(t, func() bool { return g.acts.Load() >= target || g.hasProblems() }, "requests are processed")
				g.killOne(t)
			}
			for _, executed := range g.executed {
				eventually(t, func() bool { return executed.Load() > 0 || g.hasProblems() }, "each worker has received requests")
			}
			g.stopped.Store(true)
			eventually(t, func() bool { return g.ended.Load() == genesisSenders || g.hasProblems() }, "the last requests end")
			require.Empty(t, g.problems)
			g.requireEvents(t)
			g.requireRequests(t)
			for _, p := range g.processes {
				p.stop(t)
			}
		})
	}
}

// fleet is one server, or several replicas, that keep their addresses.
type fleet struct {
	addresses, data []string
	processes       []*process
	settings        []setting
}

func startFleet(t *testing.T, database string) *fleet {
	t.Helper()
	f := &fleet{settings: []setting{databaseOf(t, database), env("COMET_ADMIN_TOKEN=" + fleetToken)}}
	replicas := 1
	if database == "postgres" {
		replicas = 3
		f.settings = append(f.settings, env("COMET_NATS_URL="+bustest.Start(t, bustest.Settings{}).URL()))
	}
	for range replicas {
		f.addresses, f.data = append(f.addresses, loopback.Address(t)), append(f.data, t.TempDir())
		n := len(f.processes)
		f.processes = append(f.processes, serveAt(t, f.data[n], f.addresses[n], f.settings...))
		f.processes[n].url(t)
	}
	return f
}

const fleetToken = "0123456789abcdef0123456789abcdef"

// killOne kills one process and starts it again.
func (f *fleet) killOne(t *testing.T) {
	t.Helper()
	n := rand.IntN(len(f.processes))
	f.processes[n].kill()
	f.processes[n] = serveAt(t, f.data[n], f.addresses[n], f.settings...)
	f.processes[n].url(t)
}

// pause waits before a request is sent again to a server that is down.
func pause(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

// genesisRun is what senders and workers do while servers are killed.
type genesisRun struct {
	*fleet
	fixture *protocolFixture
	stopped atomic.Bool  // no new requests
	acts    atomic.Int64 // what senders and workers have done
	ended   atomic.Int64 // senders
	// executed counts what each worker has received.
	executed []*atomic.Int64
	ada      *roamer
	bob      *publicationReceiver

	mu       sync.Mutex
	problems []string
	requests []*killRequest
	// events has the ids of publications by deduplication id. The acknowledgement of a repeated message has no id.
	events  map[string]string
	refused map[string]int // messages by the code of the error
	// What ada has received: the ids of publications, their effects by deduplication id, and repetitions.
	seen     map[string]bool
	effects  map[string]int
	repeated int
}

// killRequest is a REQUEST and what its sender has received.
type killRequest struct {
	n       int
	id      string
	owner   string // the id of the token of its sender
	raw     []byte
	task    string             // "" if no acknowledgement has arrived
	parts   map[int64]killPart // the partial results by number
	result  string             // "" before the end
	streams int
	// complete says that the sender receives all partial results: in its inbox, or in a stream that ended with the task.
	complete bool
}

// killPart is a partial result. killParts is the number of those of a request.
type killPart struct{ N, Attempt, Part int }

func killParts(n int) int { return n % 6 }

// roamer is a peer that tries the next replica when one does not respond.
type roamer struct {
	peers []*genesisPeer
	owner string // the id of its token
	turn  atomic.Int64
}

func (r *roamer) peer() *genesisPeer { return r.peers[int(r.turn.Load())%len(r.peers)] }

// repeat calls do with a replica until it returns no error, or ctx ends.
func (r *roamer) repeat(ctx context.Context, do func(p *genesisPeer) error) {
	for ctx.Err() == nil && do(r.peer()) != nil {
		r.turn.Add(1)
		pause(ctx)
	}
}

const (
	genesisStreamers, genesisRepeaters, genesisPublishers = 2, 2, 1
	// genesisSenders is the number of loops that send requests or events, with the agent on a WebSocket.
	genesisSenders = genesisStreamers + genesisRepeaters + genesisPublishers + 1
)

func startGenesisRun(t *testing.T, database string) *genesisRun {
	t.Helper()
	g := &genesisRun{fleet: startFleet(t, database), effects: map[string]int{}, seen: map[string]bool{}, refused: map[string]int{}, events: map[string]string{}}
	g.fixture = &protocolFixture{client: newClient(t, "http://"+g.addresses[0], fleetToken)}
	g.fixture.genesisKey = g.fixture.serviceKey(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	// Workers of this protocol over a WebSocket and over HTTP, and one of PROTOCOL_V5.
	socket := &partsWorker{run: g, at: g.newAgent(t, "socket-worker", "job"), known: map[string]bool{}}
	overHTTP := &partsWorker{run: g, at: g.newAgent(t, "http-worker", "job"), known: map[string]bool{}}
	running.Go(func() { socket.runSocket(ctx) })
	running.Go(func() { overHTTP.runHTTP(ctx) })
	token, turn := g.fixture.registerInfra(t, "v5-worker", "job"), 0
	runner := &jobRunner{tokens: 1}
	g.executed = []*atomic.Int64{&socket.received, &overHTTP.received, &runner.runs}
	runner.runV5Agent(t, func(ctx context.Context) (v5Conn, error) {
		turn++
		return dialV5WebSocket(ctx, "http://"+g.addresses[turn%len(g.addresses)], token)
	}, token, 4)

	// Receivers of events.
	g.ada = g.newAgent(t, "ada", "receive")
	g.bob = &publicationReceiver{client: newClient(t, g.fixture.URL, g.fixture.registerInfra(t, "bob", "receive")), effects: map[string]int{}}
	for _, id := range []string{"ada", "bob"} {
		g.subscribe(t, id, map[string]string{"pattern": "order.*"})
	}
	running.Go(func() { g.receive(ctx) })
	running.Go(func() { g.bob.run(ctx) })

	// Senders: clients that read streams, agents without a token that send repeatedly, an agent that sends events, and one that
	// sends and receives on a WebSocket.
	send := func(loop func(ctx context.Context)) {
		running.Go(func() {
			defer g.ended.Add(1)
			loop(ctx)
		})
	}
	for range genesisStreamers {
		client := g.everywhere(t, g.fixture.newGenesisPeer(t, "dashboard", fleetToken, false), "bootstrap-admin")
		send(func(ctx context.Context) { g.stream(ctx, client) })
	}
	for n := range genesisRepeaters {
		signer := g.newSigner(t, fmt.Sprintf("signer-%d", n))
		send(func(ctx context.Context) { g.sendOften(ctx, signer) })
	}
	shop, boss := g.newAgent(t, "shop", "sell"), g.newAgent(t, "boss", "order")
	send(func(ctx context.Context) { g.publish(ctx, shop) })
	running.Go(func() { (&killBoss{run: g, at: boss}).serve(ctx) })
	return g
}

// everywhere returns a peer for each replica. owner is the id of its token.
func (g *genesisRun) everywhere(t *testing.T, first *genesisPeer, owner string) *roamer {
	t.Helper()
	r := &roamer{owner: owner}
	for _, address := range g.addresses {
		p := *first
		p.url = "http://" + address
		p.client = newClient(t, p.url, first.Token)
		r.peers = append(r.peers, &p)
	}
	return r
}

// newAgent registers an agent that signs each message in whole, and receives no events.
func (g *genesisRun) newAgent(t *testing.T, id, capability string) *roamer {
	t.Helper()
	g.fixture.registerInfra(t, id, capability)
	g.subscribe(t, id)
	token := into[struct{ ID, Token string }](t, g.fixture.client, http.StatusCreated, http.MethodPost, "/api/v1/tokens", map[string]any{"name": id, "scopes": []string{"messages:send"}, "agent_id": id})
	return g.everywhere(t, g.fixture.newGenesisPeer(t, id, token.Token, true), token.ID)
}

// newSigner registers an agent whose signature replaces its token.
func (g *genesisRun) newSigner(t *testing.T, id string) *roamer {
	t.Helper()
	g.fixture.registerInfra(t, id, "sign")
	g.subscribe(t, id)
	p := g.fixture.newGenesisPeer(t, id, "", false)
	public, err := x509.MarshalPKIXPublicKey(p.key.Public())
	require.NoError(t, err)
	g.fixture.must(t, http.StatusCreated, http.MethodPost, "/api/v1/agents/"+id+"/keys", map[string]any{
		"public_key": base64.StdEncoding.EncodeToString(public), "profile": "jcs", "signature_only": true,
	})
	return g.everywhere(t, p, "key:"+id)
}

func (g *genesisRun) subscribe(t *testing.T, id string, patterns ...map[string]string) {
	t.Helper()
	g.fixture.must(t, http.StatusOK, http.MethodPut, "/api/v1/agents/"+id+"/subscriptions", map[string]any{"patterns": append([]map[string]string{}, patterns...)})
}

// problem records what must not happen.
func (g *genesisRun) problem(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.problems = append(g.problems, fmt.Sprintf(format, args...))
}

func (g *genesisRun) hasProblems() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.problems) > 0
}

// requireEvents checks that every event has reached both receivers and has had one effect on each. Events that were
// delivered too often to be tried again are dead letters, which are delivered again.
func (g *genesisRun) requireEvents(t *testing.T) {
	t.Helper()
	eventually(t, func() bool {
		g.mu.Lock()
		g.bob.mu.Lock()
		all := len(g.effects) == len(g.events) && len(g.bob.effects) == len(g.events)
		g.bob.mu.Unlock()
		g.mu.Unlock()
		if !all {
			_, _, _ = g.fixture.do(t.Context(), http.MethodPost, "/api/v1/dead-letters/redeliver", map[string]any{"type": "order.paid"})
		}
		return all
	}, "every event has arrived")
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bob.mu.Lock()
	defer g.bob.mu.Unlock()
	for receiver, effects := range map[string]map[string]int{"ada": g.effects, "bob": g.bob.effects} {
		for name := range g.events {
			require.Equal(t, 1, effects[name], "the effects of %s on %s", name, receiver)
		}
	}
	t.Logf("%d events had one effect on each receiver, who ignored %d repetitions", len(g.events), g.bob.repeated+g.repeated)
}

// requireRequests checks the tasks of all requests.
func (g *genesisRun) requireRequests(t *testing.T) {
	t.Helper()
	c := g.fixture.client
	var jobs []*job
	partial, resumed := 0, 0
	for _, r := range g.requests {
		require.Equal(t, fmt.Sprintf("job %d", r.n), r.result, "the result of %s", r.id)
		found := get[struct{ Tasks []struct{ ID string } }](t, c, "/api/v1/tasks?request_id="+r.id+"&owner="+r.owner).Tasks
		require.Len(t, found, 1, "the tasks of %s", r.id)
		require.Contains(t, []string{"", found[0].ID}, r.task)
		r.task = found[0].ID
		jobs = append(jobs, &job{n: r.n, request: comet.Request{TaskID: uuid.MustParse(r.task)}})
	}
	require.Equal(t, len(jobs), countTasks(t, c), "there are no other tasks")
	charged := c.settle(t, jobs...)
	again := 0
	for _, r := range g.requests {
		task := charged.tasks[uuid.MustParse(r.task)]
		require.Equal(t, "done", task.State, "%+v", task)
		require.EqualValues(t, 1, task.Tokens, "%+v", task)
		again += len(task.Attempts) - 1
		partial += g.requireParts(t, r, task)
		resumed += max(r.streams-1, 0)
	}
	charged.requireSettled(t, "socket-worker", "http-worker", "v5-worker")
	t.Logf("%d requests had one result each (%v), with %d further attempts; %d partial results were in order; %d streams were resumed; refused were %v",
		len(g.requests), charged.doneBy(), again, partial, resumed, g.refused)
}

// countTasks returns the number of all tasks of a server.
func countTasks(t *testing.T, c *client) (n int) {
	t.Helper()
	for path := "/api/v1/tasks?limit=1000"; path != ""; {
		page := get[struct {
			Tasks      []struct{ ID string }
			NextCursor string `json:"next_cursor"`
		}](t, c, path)
		n += len(page.Tasks)
		if path = ""; page.NextCursor != "" {
			path = "/api/v1/tasks?limit=1000&cursor=" + page.NextCursor
		}
	}
	return n
}

// requireParts checks that the stored partial results are numbered without gaps, that each attempt has stored what its worker
// sent, in order, and that the requester has received the same. It returns their number.
func (g *genesisRun) requireParts(t *testing.T, r *killRequest, task taskDetail) int {
	t.Helper()
	stored := get[struct {
		Partials []struct {
			Number, Attempt int
			Data            killPart
		}
	}](t, g.fixture.client, "/api/v1/tasks/"+r.task+"/partials?limit=100").Partials
	last := map[int]int{} // the last part by attempt
	for i, p := range stored {
		require.Equal(t, i+1, p.Number, "%+v", stored)
		last[p.Attempt]++
		require.Equal(t, killPart{r.n, p.Attempt, last[p.Attempt]}, p.Data, "%s: %+v", r.task, stored)
	}
	if by := task.Attempts[len(task.Attempts)-1]; *by.AgentID != "v5-worker" { // which has only a result
		require.Equal(t, killParts(r.n), last[len(task.Attempts)], "%s: %+v", r.task, stored)
	}
	if r.complete {
		eventually(t, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(r.parts) == len(stored) || len(g.problems) > 0
		}, "the requester has all partial results of "+r.task)
	}
	require.Empty(t, g.problems)
	for number, data := range r.parts {
		require.LessOrEqual(t, int(number), len(stored))
		require.Equal(t, stored[number-1].Data, data, "%s, number %d", r.task, number)
	}
	return len(stored)
}
