package v5_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/auth"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	v5 "comet/internal/protocol/v5"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/protocol/v5/references"
	"comet/internal/testkit"
	wire "comet/internal/wire/v5"
	"comet/models"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is the protocol over an orchestrator with a database of its own.
type fixture struct {
	*v5.Protocol
	work *testkit.Work
	db   *storetest.DB
	keys *auth.Keys
}

// testOnDatabases runs a subtest on a fresh database of every kind.
func testOnDatabases(t *testing.T, name string, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { fn(t, open(t, db)) })
	})
}

func open(t testing.TB, db *storetest.DB) *fixture {
	t.Helper()
	work := testkit.StartWork(t, db, orchestrator.Options{
		Resolver: references.Resolver{}, Classes: map[string]orchestrator.Policy{v5.Class: v5.Policy()},
		ReservedSessionID: v5.ReservesSession,
	})
	keys := auth.NewKeys(db.Store, &auth.KeysOptions{Clock: db.Now})
	return &fixture{v5.New(work.Orchestrator, db.Store, &v5.Options{Keys: keys, MessageLog: messagelog.New(db.Store, nil)}), work, db, keys}
}

// agent registers an agent with capabilities.
func (f *fixture) agent(t testing.TB, id string, capabilities ...string) {
	t.Helper()
	f.work.AddAgent(t, id, "", capabilities...)
}

// principal returns the principal of a name in a transcript: "user", "user2", "admin", or an
// agent.
func principal(name string) models.Principal {
	p := models.Principal{TokenID: "token-of-" + name, Name: name, Scopes: []models.Scope{models.ScopeMessagesSend}}
	switch name {
	case "user", "user2":
	case "admin":
		p.Scopes = []models.Scope{models.ScopeAdmin}
	default:
		p.AgentID = &name
	}
	return p
}

// peer returns the peer of a name in a transcript.
func peer(name string) protocol.Peer { return protocol.Peer{Principal: principal(name)} }

// send sends a message and returns the replies.
func (f *fixture) send(t testing.TB, who, line string, wait time.Duration) []string {
	t.Helper()
	a := f.Receive(t.Context(), peer(who), []byte(line), wait)
	if a.Joined && !a.IsError { // as a transport does
		_, err := f.work.Join(t.Context(), who, orchestrator.JoinRequest{Protocol: v5.Name, ProtocolVersion: a.Version, Transport: "websocket", Concurrency: a.Concurrency, MaxDepth: a.MaxDepth})
		require.NoError(t, err)
	}
	for l := range strings.SplitSeq(string(a.Body), "\n") {
		_, err := parse(l)
		require.NoError(t, err, l)
	}
	return strings.Split(string(a.Body), "\n")
}

// waitForWorkerCache waits until the cache of workers has the stored versions: the effect of a
// task's end on its worker reaches the cache a moment later.
func (f *fixture) waitForWorkerCache(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		workers, err := f.work.Workers(t.Context(), "", "", 100)
		require.NoError(t, err)
		for _, w := range workers {
			if f.work.CachedWorker(w.AgentID).Version != w.Version {
				return false
			}
		}
		return true
	}, time.Minute, 5*time.Millisecond, "the cache has the stored workers")
}

// parse parses a message of V5 or, with eight segments, of V4.
func parse(line string) (wire.Message, error) {
	if strings.Count(line, "|") == wire.SegmentsV4-1 {
		return wire.ParseV4(line)
	}
	return wire.Parse(line)
}

// receive waits for messages to an agent and returns them.
func (f *fixture) receive(t *testing.T, id string) (out []string) {
	t.Helper()
	require.Eventually(t, func() bool {
		out = f.render(t, id)
		return len(out) > 0
	}, time.Minute, 5*time.Millisecond, "a message to %s", id)
	return out
}

var (
	number = regexp.MustCompile(`^M\d+\|`)
	parent = regexp.MustCompile(`;pid=M\d+$`)
)

// withoutNumbers replaces the message numbers, because O1 begins at any number.
func withoutNumbers(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = number.ReplaceAllString(l, "M*|")
	}
	return out
}

// withoutParents also removes pid=, the numbers of the messages that are replied to.
func withoutParents(lines []string) []string {
	out := withoutNumbers(lines)
	for i, l := range out {
		out[i] = parent.ReplaceAllString(l, "")
	}
	return out
}

// transcript plays a conversation. A line is
//
//	agent NAME CAPABILITY…   registers an agent
//	NAME > MESSAGE           sends a message; "NAME wait > MESSAGE" waits for the outcome,
//	                         and "NAME until > MESSAGE" repeats it until the reply is no U
//	< MESSAGE                requires the next reply
//	NAME < MESSAGE           requires a message to an agent
//	# …                      is a comment
func (f *fixture) transcript(t *testing.T, text string) {
	t.Helper()
	var replies []string
	for n, l := range strings.Split(text, "\n") {
		who, rest, _ := strings.Cut(l, " ")
		at := "line " + string(rune('0'+(n+1)/10)) + string(rune('0'+(n+1)%10)) + ": " + l
		switch {
		case l == "" || l[0] == '#':
		case who == "agent":
			names := strings.Fields(rest)
			f.agent(t, names[0], names[1:]...)
		case who == "<":
			require.NotEmpty(t, replies, at)
			require.Equal(t, rest, replies[0], at)
			replies = replies[1:]
		case strings.HasPrefix(rest, "< "):
			require.Empty(t, replies, at)
			require.Equal(t, []string{rest[2:]}, withoutNumbers(f.receive(t, who)), at)
		case strings.HasPrefix(rest, "> "):
			require.Empty(t, replies, at)
			if strings.Contains(rest, "|R|") {
				f.waitForWorkerCache(t)
			}
			replies = withoutNumbers(f.send(t, who, rest[2:], 0))
		case strings.HasPrefix(rest, "wait > "):
			require.Empty(t, replies, at)
			replies = withoutNumbers(f.send(t, who, rest[7:], time.Minute))
		case strings.HasPrefix(rest, "until > "):
			require.Empty(t, replies, at)
			require.Eventually(t, func() bool {
				replies = withoutNumbers(f.send(t, who, rest[8:], 0))
				return !strings.Contains(replies[0], "|U|")
			}, time.Minute, 5*time.Millisecond, at)
		default:
			require.Fail(t, "invalid line of a transcript", at)
		}
	}
	require.Empty(t, replies)
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
		testOnDatabases(t, strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T, f *fixture) { f.transcript(t, string(text)) })
	}
}
