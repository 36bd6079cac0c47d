package v5_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/v5"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// theKey is one that was agreed on elsewhere.
const theKey = "a key that was agreed on"

// sign is a line as somebody sends it who has the key.
func sign(t *testing.T, line, key, nonce string) string {
	t.Helper()
	m, err := wire.Parse(line)
	require.NoError(t, err, line)
	session := m.Context
	if session == "" {
		session = "S0"
	}
	signed, err := wire.Sign(line, []byte(key), session, nonce)
	require.NoError(t, err)
	return signed
}

// signs gives an agent the key.
func (h *house) signs(t *testing.T, id string, required bool) {
	t.Helper()
	_, err := h.keys.Issue(t.Context(), principal("admin"), id, models.AgentKeyDraft{Key: new(theKey), Required: &required})
	require.NoError(t, err)
}

// one says a line to which there is one answer, without its number and signature.
func (h *house) one(t *testing.T, who, line string) string {
	t.Helper()
	said := h.says(t, who, line, 0)
	require.Len(t, said, 1)
	said[0], _, _ = strings.Cut(said[0], ";auth=")
	return unnumbered(said)[0]
}

const (
	joining = "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=web_search"
	joined  = "M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5"
	alive   = "M2|W1>O1|H|T0|-|-|-|0|S0|-|load=1%"
	beating = "M*|O1>W1|A|T0|-|-|-|0|S0|-|alive"
)

// refusedFor is what begins the answer to a line of W1's that is refused for its signature.
func refusedFor(reason string) string {
	return "M*|O1>W1|E|T0|-|F|E90|0|S0|-|reason=" + reason + ";"
}

// TestASignedLine (PROTOCOL_V5 §11).
func TestASignedLine(t *testing.T) {
	t.Parallel()
	rule(t, "is taken once", func(t *testing.T, h *house) {
		h.agent(t, "ada")
		h.signs(t, "ada", false)
		require.Equal(t, joined, h.one(t, "ada", sign(t, joining, theKey, "00aa")))
		require.Contains(t, h.one(t, "ada", sign(t, joining, theKey, "00aa")), refusedFor(codes.ReasonReplay))
		require.Contains(t, h.one(t, "ada", sign(t, joining, theKey, "00ab")), refusedFor(codes.ReasonReplay), "whatever its nonce is: it is not signed")
		require.Equal(t, beating, h.one(t, "ada", sign(t, alive, theKey, "00aa")))
		other := strings.Replace(alive, "1%", "2%", 1)
		require.Contains(t, h.one(t, "ada", sign(t, other, theKey, "00AA")), refusedFor(codes.ReasonReplay), "the same CTX, MSG and NONCE")
		require.Equal(t, beating, h.one(t, "ada", sign(t, other, theKey, "00ab")), "and what was refused is not noted")
		require.Equal(t, beating, h.one(t, "ada", alive), "nobody has to sign who is not told to")
	})
	rule(t, "is not taken again after a restart, and by another replica, for the window", func(t *testing.T, h *house) {
		h.agent(t, "ada")
		h.signs(t, "ada", true)
		require.Equal(t, joined, h.one(t, "ada", sign(t, joining, theKey, "00aa")))
		next := *h
		next.keys = auth.NewKeys(h.db.Store, &auth.KeysOptions{Clock: h.db.Now, Window: 24 * time.Hour})
		next.Protocol = v5.New(h.work, &v5.Options{Keys: next.keys})
		require.Contains(t, next.one(t, "ada", sign(t, joining, theKey, "00aa")), refusedFor(codes.ReasonReplay))
		h.db.Clock.Advance(24 * time.Hour)
		require.NoError(t, next.keys.Purge(t.Context()))
		require.Contains(t, next.one(t, "ada", sign(t, joining, theKey, "00aa")), refusedFor(codes.ReasonReplay))
		h.db.Clock.Advance(time.Microsecond)
		require.NoError(t, next.keys.Purge(t.Context()))
		require.Equal(t, joined, next.one(t, "ada", sign(t, joining, theKey, "00aa")), "what is older is not known any more")
	})
	rule(t, "that is wrong changes nothing", func(t *testing.T, h *house) {
		h.agent(t, "ada")
		h.signs(t, "ada", true)
		good := sign(t, joining, theKey, "00aa")
		other, err := wire.Sign(joining, []byte(theKey), "S1", "00aa")
		require.NoError(t, err)
		for line, reason := range map[string]string{
			joining:                                  codes.ReasonUnsigned,
			sign(t, joining, "another key", "00aa"):  codes.ReasonSignature,
			strings.Replace(good, "web_", "mob_", 1): codes.ReasonSignature,
			other:                                    codes.ReasonSession,
			good[:len(good)-1]:                       codes.ReasonAuth,
			strings.Replace(good, ";auth=", "; auth=", 1):    codes.ReasonAuth,
			strings.Replace(good, "caps=web_search;", "", 1): codes.ReasonAuth,
		} {
			said := h.one(t, "ada", line)
			require.Contains(t, said, refusedFor(reason), line)
			require.NotContains(t, said, ";auth", "what did not come from it is not answered with a signature")
		}
		agent, err := h.db.Agent(t.Context(), "ada")
		require.NoError(t, err)
		require.Empty(t, agent.Capabilities)
		require.Empty(t, h.work.CachedWorker("ada").State)
		require.Equal(t, joined, h.one(t, "ada", good), "none of them was noted as taken")
	})
	rule(t, "of whoever has no key is refused", func(t *testing.T, h *house) {
		h.agent(t, "ada")
		require.Contains(t, h.one(t, "ada", sign(t, joining, theKey, "00aa")), refusedFor(codes.ReasonNoKey))
		require.Equal(t, joined, h.one(t, "ada", joining))
		ask := sign(t, "M1|User>O1|R|-|-|-|-|0|-|-|call=web_search", theKey, "00aa")
		require.Contains(t, h.one(t, "user", ask), "O1>User|E|-|-|F|E90|0|-|-|reason="+codes.ReasonNoKey)
		all, err := h.work.OpenTasksOf(t.Context(), "ada")
		require.NoError(t, err)
		require.Empty(t, all)
	})
	rule(t, "is held against the key that the agent has now", func(t *testing.T, h *house) {
		h.agent(t, "ada")
		h.signs(t, "ada", true)
		require.Equal(t, joined, h.one(t, "ada", sign(t, joining, theKey, "00aa")))
		next, err := h.keys.Issue(t.Context(), principal("admin"), "ada", models.AgentKeyDraft{})
		require.NoError(t, err)
		require.Contains(t, h.one(t, "ada", sign(t, alive, theKey, "00aa")), refusedFor(codes.ReasonSignature))
		require.Equal(t, beating, h.one(t, "ada", sign(t, alive, next.Secret, "00aa")), "required stays")
		require.NoError(t, h.keys.Revoke(t.Context(), principal("admin"), "ada"))
		require.Contains(t, h.one(t, "ada", sign(t, alive, next.Secret, "00ab")), refusedFor(codes.ReasonNoKey))
		require.Equal(t, beating, h.one(t, "ada", alive))
	})
	rule(t, "that is refused for another reason is known to come from the agent", func(t *testing.T, h *house) {
		h.agent(t, "ada")
		h.signs(t, "ada", true)
		require.Equal(t, joined, h.one(t, "ada", sign(t, joining, theKey, "00aa")))
		for i, line := range []string{"M2|W1>O1|A|T0|-|-|-|0|S0|-|pid=what", "M3|W1>O1|U|T9|-|R|-|50%"} {
			signed, err := wire.Sign(line, []byte(theKey), "S0", fmt.Sprintf("00a%d", i))
			require.NoError(t, err)
			a := h.Receive(t.Context(), principal("ada"), []byte(signed), 0)
			require.True(t, a.IsError)
			require.False(t, a.Unauthenticated, string(a.Body))
			require.NoError(t, wire.Verify(string(a.Body), []byte(theKey)), "and is answered with a signature: %s", a.Body)
			a = h.Receive(t.Context(), principal("ada"), []byte(signed), 0)
			require.Contains(t, string(a.Body), codes.ReasonReplay, "it was taken")
		}
	})
	rule(t, "counts with the token that was sent in it", func(t *testing.T, h *house) {
		h.agent(t, "ada")
		h.signs(t, "ada", true)
		line := sign(t, "M1|W1>O1|J|T0|-|-|-|0|S0|-|token=sesame;caps=web_search", theKey, "00aa")
		require.Equal(t, joined, h.one(t, "ada", line))
	})
}

// TestWhatASigningAgentIsTold: all that O1 says to it is signed, with a nonce of its own
// and the session it is about.
func TestWhatASigningAgentIsTold(t *testing.T) {
	t.Parallel()
	requireSigned := func(t *testing.T, line string) wire.Message {
		t.Helper()
		require.NoError(t, wire.Verify(line, []byte(theKey)), line)
		m, err := wire.Parse(line)
		require.NoError(t, err)
		want := m.Context
		if want == "" {
			want = "S0"
		}
		require.Equal(t, want, m.Auth.Session)
		return m
	}
	rule(t, "is signed where its key is required", func(t *testing.T, h *house) {
		h.agent(t, "ada", "web_search")
		h.agent(t, "bob", "web_search")
		h.signs(t, "ada", true)
		requireSigned(t, h.says(t, "ada", sign(t, joining, theKey, "00aa"), 0)[0])
		nonces := map[string]bool{}
		for i := range 3 {
			h.one(t, "user", fmt.Sprintf("M%d|User>W1|R|-|-|-|-|0|-|-|call=web_search;n=%d", i+1, i))
			work := requireSigned(t, h.told(t, "ada")[0])
			require.Equal(t, wire.Request, work.Type)
			nonces[work.Auth.Nonce+work.Context] = true
			done := fmt.Sprintf("M%d|W1>O1|S|%s|-|D|-|0|%s|-|n=%d", i+2, work.Task, work.Context, i)
			requireSigned(t, h.says(t, "ada", sign(t, done, theKey, "00aa"), 0)[0])
		}
		require.Len(t, nonces, 3)
		refused := requireSigned(t, h.says(t, "ada", sign(t, "M9|W1>O1|S|T1|-|D|-|0|S99|-|-", theKey, "00aa"), 0)[0])
		require.Equal(t, codes.E42, refused.Err, "a refusal too, of what is known to come from it")
		said := h.says(t, "bob", strings.ReplaceAll(joining, "W1", "W2"), 0)[0]
		require.NotContains(t, said, "auth=", "who need not sign is told nothing that is signed")
	})
	rule(t, "is signed where it is on another machine", func(t *testing.T, h *house) {
		h.agent(t, "ada", "web_search")
		h.signs(t, "ada", false)
		far := protocol.WithConnection(t.Context(), protocol.Connection{Remote: true})
		a := h.Receive(far, principal("ada"), []byte(joining), 0)
		require.Contains(t, string(a.Body), "reason="+codes.ReasonUnsigned)
		a = h.Receive(far, principal("ada"), []byte(sign(t, joining+";token=sesame", theKey, "00aa")), 0)
		require.Contains(t, string(a.Body), "reason=token;", "a token is not for the network")
		a = h.Receive(far, principal("ada"), []byte(sign(t, joining, theKey, "00aa")), 0)
		requireSigned(t, string(a.Body))
		_, err := h.work.Join(t.Context(), "ada", orchestrator.JoinRequest{Protocol: v5.Name, Transport: "tcp", Concurrency: 1})
		require.NoError(t, err)
		h.one(t, "user", "M1|User>W1|R|-|-|-|-|0|-|-|call=web_search")
		var all []models.InboxMessage
		require.Eventually(t, func() bool {
			all, err = h.work.Messages(t.Context(), "ada", 10)
			return err != nil || len(all) > 0
		}, time.Minute, time.Millisecond)
		require.NoError(t, err)
		lines, err := h.Render(far, models.Agent{ID: "ada"}, all[0], 0)
		require.NoError(t, err)
		requireSigned(t, string(lines[0]))
		require.NoError(t, h.keys.Revoke(t.Context(), principal("admin"), "ada"))
		_, err = h.Render(far, models.Agent{ID: "ada"}, all[0], 0)
		require.ErrorContains(t, err, "no key", "nothing goes there without a signature")
	})
	rule(t, "cannot be sent back as its own", func(t *testing.T, h *house) {
		h.agent(t, "ada", "web_search")
		h.signs(t, "ada", true)
		h.says(t, "ada", sign(t, joining+";concurrency=2", theKey, "00aa"), 0)
		_, err := h.work.Join(t.Context(), "ada", orchestrator.JoinRequest{Protocol: v5.Name, Transport: "websocket", Concurrency: 2})
		require.NoError(t, err)
		h.one(t, "user", "M1|User>W1|R|-|-|-|-|0|-|-|call=web_search")
		work := requireSigned(t, h.told(t, "ada")[0])
		part := fmt.Sprintf("M2|W1>W1|X|%s|-|R|-|1|%s|-|call=web_search", work.Task, work.Context)
		h.says(t, "ada", sign(t, part, theKey, "00aa"), 0)
		got := requireSigned(t, h.told(t, "ada")[0])
		require.Equal(t, "O1", got.From.String(), "it was handed off to itself")
		require.Equal(t, wire.Handoff, got.Type)
	})
}

// TestASignatureIsKeptNowhere: neither it nor the key is in what is kept of a line, or
// passed on.
func TestASignatureIsKeptNowhere(t *testing.T) {
	t.Parallel()
	rule(t, "nor in what others are told", func(t *testing.T, h *house) {
		h.agent(t, "ada")
		h.agent(t, "bob", "web_search")
		h.signs(t, "ada", true)
		h.says(t, "bob", "M1|W2>O1|J|T0|-|-|-|0|S0|-|-", 0)
		h.says(t, "ada", sign(t, "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", theKey, "00aa"), 0)
		said := h.says(t, "ada", sign(t, "M2|W1>O1|R|-|-|-|-|0|-|-|call=web_search;q=x", theKey, "beef"), 0)
		require.Contains(t, said[0], "accepted")
		told := h.told(t, "bob")
		require.Len(t, told, 1)
		require.NotContains(t, told[0], "auth")
		m, err := wire.Parse(told[0])
		require.NoError(t, err)
		require.Contains(t, h.one(t, "bob", fmt.Sprintf("M2|W2>O1|Q|%s|-|-|-|0|%s|-|ref=%s:params", m.Task, m.Context, m.Task)), "of=1")
		orders, err := h.work.OpenTasksOf(t.Context(), "bob")
		require.NoError(t, err)
		require.Len(t, orders, 1)
		require.NotContains(t, fmt.Sprintf("%s%s", orders[0].Input.Parameters, orders[0].Input.Meta), "auth")
		require.NotContains(t, fmt.Sprintf("%s%s", orders[0].Input.Parameters, orders[0].Input.Meta), ":beef:")
	})
}

// TestWorkerName: the core's name of a number is that of the lines.
func TestWorkerName(t *testing.T) {
	t.Parallel()
	for n := 1; n < 1000; n++ {
		require.Equal(t, wire.WorkerAddress(n).String(), models.WorkerName(int64(n)))
	}
}
