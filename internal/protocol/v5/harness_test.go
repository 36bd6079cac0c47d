package v5_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/auth"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/protocol/v5"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/registry"
	"comet/internal/usage"
	wire "comet/internal/wire/v5"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is the dialect over an orchestrator on a database of its own.
type house struct {
	*v5.Protocol
	work *orchestrator.Orchestrator
	db   *storetest.DB
	keys *auth.Keys
}

// rule runs one case on a fresh database of every kind.
func rule(t *testing.T, name string, fn func(t *testing.T, h *house)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, open(t, db)) })
	})
}

func open(t testing.TB, db *storetest.DB) *house {
	t.Helper()
	reg := registry.New(db.Store, nil)
	require.NoError(t, reg.Bootstrap(t.Context()))
	work := orchestrator.New(db.Store, usage.New(db.Store, nil), &orchestrator.Options{
		Registry: reg, Classes: map[string]orchestrator.Policy{v5.Class: v5.Policy()}, Poll: 2 * time.Millisecond,
	})
	runner := jobs.New(db.Store, &jobs.Options{Poll: 2 * time.Millisecond})
	work.RegisterJobs(runner)
	require.NoError(t, work.Start(t.Context()))
	require.NoError(t, runner.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, runner.Stop(context.Background()))
		require.NoError(t, work.Stop(context.Background()))
	})
	require.Eventually(t, func() bool { return work.Check(t.Context()) == nil }, time.Minute, time.Millisecond)
	keys := auth.NewKeys(db.Store, &auth.KeysOptions{Clock: db.Now})
	return &house{v5.New(work, &v5.Options{Keys: keys, MessageLog: messagelog.New(db.Store, nil)}), work, db, keys}
}

// agent registers an agent that offers the capabilities.
func (h *house) agent(t testing.TB, id string, capabilities ...string) {
	t.Helper()
	now, parent, sphere, budget := h.db.Now(), "orch-my-team", 8, int64(50_000)
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		return tx.InsertAgent(models.Agent{
			ID: id, Name: id, Level: 2, SphereID: &sphere, FrequencyHz: 555, Capabilities: capabilities, ParentID: &parent, TokenBudget: &budget,
			IsActive: true, Version: 1, CreatedAt: now, UpdatedAt: now,
		})
	}))
	require.NoError(t, h.work.ReindexAgent(t.Context(), id))
}

// principal is whom a name in a transcript stands for: "user", "admin", or an agent.
func principal(name string) models.Principal {
	p := models.Principal{TokenID: "token-of-" + name, Name: name, Scopes: []models.Scope{models.ScopeMessagesSend}}
	switch name {
	case "user", "stranger":
	case "admin":
		p.Scopes = []models.Scope{models.ScopeAdmin}
	default:
		p.AgentID = &name
	}
	return p
}

// says hands a line in and returns the answer's lines.
func (h *house) says(t testing.TB, who, line string, wait time.Duration) []string {
	t.Helper()
	a := h.Receive(t.Context(), principal(who), []byte(line), wait)
	if a.Joined && !a.IsError { // what a link does
		_, err := h.work.Join(t.Context(), who, orchestrator.JoinRequest{Protocol: v5.Name, ProtocolVersion: a.Version, Transport: "websocket", Concurrency: a.Concurrency, MaxDepth: a.MaxDepth})
		require.NoError(t, err)
	}
	for l := range strings.SplitSeq(string(a.Body), "\n") {
		_, err := parse(l)
		require.NoError(t, err, l)
	}
	return strings.Split(string(a.Body), "\n")
}

// settle waits until who chooses workers knows of them what is stored: what a task that has
// just ended did to its worker is known a moment later.
func (h *house) settle(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		workers, err := h.work.Workers(t.Context(), "", 100)
		require.NoError(t, err)
		for _, w := range workers {
			if h.work.CachedWorker(w.AgentID).Version != w.Version {
				return false
			}
		}
		return true
	}, time.Minute, time.Millisecond, "what is known of the workers is what is stored")
}

// parse reads a line of V5 or, where it has eight segments, of V4.
func parse(line string) (wire.Message, error) {
	if strings.Count(line, "|") == wire.SegmentsV4-1 {
		return wire.ParseV4(line)
	}
	return wire.Parse(line)
}

// told returns what an agent is to be told.
func (h *house) told(t *testing.T, id string) (out []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		out = h.handOver(t, id)
		return len(out) > 0
	}, time.Minute, time.Millisecond, "%s is told something", id)
	return out
}

var number = regexp.MustCompile(`^M\d+\|`)

// unnumbered is a line whose message number is not looked at: O1's begin anywhere.
func unnumbered(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = number.ReplaceAllString(l, "M*|")
	}
	return out
}

// transcript plays a conversation. A line is
//
//	agent NAME CAPABILITY…   an agent is registered
//	NAME > LINE              somebody says it; "NAME wait > LINE" waits for the end,
//	                         and "NAME until > LINE" says it until the work does not go on
//	< LINE                   and gets the answer, one such line for each of it
//	NAME < LINE              an agent is told it
//	# …                      is for the reader
func (h *house) transcript(t *testing.T, text string) {
	t.Helper()
	var answers []string
	for n, l := range strings.Split(text, "\n") {
		who, rest, _ := strings.Cut(l, " ")
		at := "line " + string(rune('0'+(n+1)/10)) + string(rune('0'+(n+1)%10)) + ": " + l
		switch {
		case l == "" || l[0] == '#':
		case who == "agent":
			names := strings.Fields(rest)
			h.agent(t, names[0], names[1:]...)
		case who == "<":
			require.NotEmpty(t, answers, at)
			require.Equal(t, rest, answers[0], at)
			answers = answers[1:]
		case strings.HasPrefix(rest, "< "):
			require.Empty(t, answers, at)
			require.Equal(t, []string{rest[2:]}, unnumbered(h.told(t, who)), at)
		case strings.HasPrefix(rest, "> "):
			require.Empty(t, answers, at)
			if strings.Contains(rest, "|R|") {
				h.settle(t)
			}
			answers = unnumbered(h.says(t, who, rest[2:], 0))
		case strings.HasPrefix(rest, "wait > "):
			require.Empty(t, answers, at)
			answers = unnumbered(h.says(t, who, rest[7:], time.Minute))
		case strings.HasPrefix(rest, "until > "):
			require.Empty(t, answers, at)
			require.Eventually(t, func() bool {
				answers = unnumbered(h.says(t, who, rest[8:], 0))
				return !strings.Contains(answers[0], "|U|")
			}, time.Minute, time.Millisecond, at)
		default:
			require.Fail(t, "a transcript cannot have this", at)
		}
	}
	require.Empty(t, answers)
}

// TestTranscripts plays every conversation in testdata on both databases.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		rule(t, strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T, h *house) { h.transcript(t, string(text)) })
	}
}
