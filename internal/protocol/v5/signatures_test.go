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
	v5 "comet/internal/protocol/v5"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// sharedKey is a key that was agreed on outside of the protocol.
const sharedKey = "a key that was agreed on"

// sign signs a message with a key.
func sign(t *testing.T, line, key, nonce string) string {
	t.Helper()
	m, err := wire.Parse(line)
	require.NoError(t, err, line)
	session := m.Context
	if session == "" {
		session = "S0"
	}
	signed, err := wire.Auth{Session: session, Nonce: nonce}.Sign(line, []byte(key))
	require.NoError(t, err)
	return signed
}

// issueKey gives an agent the shared key.
func (f *fixture) issueKey(t *testing.T, id string, required bool) {
	t.Helper()
	_, err := f.keys.Issue(t.Context(), principal("admin"), id, auth.AgentKeyDraft{Key: new(sharedKey), Required: &required})
	require.NoError(t, err)
	_, err = shortid.AgentNumber(t.Context(), f.db.Store, id) // as the API does with a new key
	require.NoError(t, err)
}

// sendOne sends a message that has one reply, and returns it without its number and signature.
func (f *fixture) sendOne(t *testing.T, who, line string) string {
	t.Helper()
	replies := f.send(t, who, line, 0)
	require.Len(t, replies, 1)
	replies[0], _, _ = strings.Cut(replies[0], ";auth=")
	return withoutParents(replies)[0]
}

const (
	joinMessage      = "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=web_search"
	joinReply        = "M*|O1>W1|A|T0|-|D|-|0|S0|-|registered;id=W1;status=active;version=V5"
	heartbeatMessage = "M2|W1>O1|H|T0|-|-|-|0|S0|-|load=1%"
	heartbeatReply   = "M*|O1>W1|A|T0|-|-|-|0|S0|-|alive"
)

// signatureErrorPrefix is the beginning of the reply to a message of W1 with an invalid signature.
func signatureErrorPrefix(reason string) string {
	return "M*|O1>W1|E|T0|-|F|E90|0|S0|-|reason=" + reason + ";"
}

// TestSignedMessage (PROTOCOL_V5 §11).
func TestSignedMessage(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "is accepted once", func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		f.issueKey(t, "ada", false)
		require.Equal(t, joinReply, f.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00aa")))
		require.Contains(t, f.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00aa")), signatureErrorPrefix(codes.ReasonReplay))
		require.Contains(t, f.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00ab")), signatureErrorPrefix(codes.ReasonReplay), "the signature does not cover the nonce")
		require.Equal(t, heartbeatReply, f.sendOne(t, "ada", sign(t, heartbeatMessage, sharedKey, "00aa")))
		other := strings.Replace(heartbeatMessage, "1%", "2%", 1)
		require.Contains(t, f.sendOne(t, "ada", sign(t, other, sharedKey, "00AA")), signatureErrorPrefix(codes.ReasonReplay), "the same CTX, MSG and NONCE")
		require.Equal(t, heartbeatReply, f.sendOne(t, "ada", sign(t, other, sharedKey, "00ab")), "a rejected message is not recorded as used")
		require.Equal(t, heartbeatReply, f.sendOne(t, "ada", heartbeatMessage), "signing is optional where the key is not required")
	})
	testOnDatabases(t, "is not accepted again after a restart or by another replica within the replay window", func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		f.issueKey(t, "ada", true)
		require.Equal(t, joinReply, f.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00aa")))
		next := *f
		next.keys = auth.NewKeys(f.db.Store, &auth.KeysOptions{Clock: f.db.Now, Window: 24 * time.Hour})
		next.Protocol = v5.New(f.work.Orchestrator, f.db.Store, &v5.Options{Keys: next.keys})
		require.Contains(t, next.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00aa")), signatureErrorPrefix(codes.ReasonReplay))
		f.db.Clock.Advance(24 * time.Hour)
		require.NoError(t, next.keys.Purge(t.Context()))
		require.Contains(t, next.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00aa")), signatureErrorPrefix(codes.ReasonReplay))
		f.db.Clock.Advance(time.Microsecond)
		require.NoError(t, next.keys.Purge(t.Context()))
		require.Equal(t, joinReply, next.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00aa")), "older messages are forgotten")
	})
	testOnDatabases(t, "has no effect with an invalid signature", func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		f.issueKey(t, "ada", true)
		good := sign(t, joinMessage, sharedKey, "00aa")
		other, err := wire.Auth{Session: "S1", Nonce: "00aa"}.Sign(joinMessage, []byte(sharedKey))
		require.NoError(t, err)
		for line, reason := range map[string]string{
			joinMessage: codes.ReasonUnsigned,
			sign(t, joinMessage, "another key", "00aa"):      codes.ReasonSignature,
			strings.Replace(good, "web_", "mob_", 1):         codes.ReasonSignature,
			other:                                            codes.ReasonSession,
			good[:len(good)-1]:                               codes.ReasonAuth,
			strings.Replace(good, ";auth=", "; auth=", 1):    codes.ReasonAuth,
			strings.Replace(good, "caps=web_search;", "", 1): codes.ReasonAuth,
		} {
			reply := f.sendOne(t, "ada", line)
			require.Contains(t, reply, signatureErrorPrefix(reason), line)
			require.NotContains(t, reply, ";auth", "the reply to an unauthenticated message is not signed")
		}
		agent, err := f.db.Agents(t.Context()).Get("ada")
		require.NoError(t, err)
		require.Empty(t, agent.Capabilities)
		require.Empty(t, f.work.CachedWorker("ada").State)
		require.Equal(t, joinReply, f.sendOne(t, "ada", good), "none of them was recorded as used")
	})
	testOnDatabases(t, "is rejected where the agent has no key", func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		require.Contains(t, f.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00aa")), signatureErrorPrefix(codes.ReasonNoKey))
		require.Equal(t, joinReply, f.sendOne(t, "ada", joinMessage))
		request := sign(t, "M1|User>O1|R|-|-|-|-|0|-|-|call=web_search", sharedKey, "00aa")
		require.Contains(t, f.sendOne(t, "user", request), "O1>User|E|-|-|F|E90|0|-|-|reason="+codes.ReasonNoKey)
		all, err := f.work.OpenTasksOf(t.Context(), "ada")
		require.NoError(t, err)
		require.Empty(t, all)
	})
	testOnDatabases(t, "is verified with the agent's current key", func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		f.issueKey(t, "ada", true)
		require.Equal(t, joinReply, f.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00aa")))
		next, err := f.keys.Issue(t.Context(), principal("admin"), "ada", auth.AgentKeyDraft{})
		require.NoError(t, err)
		require.Contains(t, f.sendOne(t, "ada", sign(t, heartbeatMessage, sharedKey, "00aa")), signatureErrorPrefix(codes.ReasonSignature))
		require.Equal(t, heartbeatReply, f.sendOne(t, "ada", sign(t, heartbeatMessage, next.Secret, "00aa")), "the new key is required too")
		require.NoError(t, f.keys.Revoke(t.Context(), principal("admin"), "ada", auth.HMACSHA256))
		require.Contains(t, f.sendOne(t, "ada", sign(t, heartbeatMessage, next.Secret, "00ab")), signatureErrorPrefix(codes.ReasonNoKey))
		require.Equal(t, heartbeatReply, f.sendOne(t, "ada", heartbeatMessage))
	})
	testOnDatabases(t, "is authenticated even where it is rejected for another reason", func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		f.issueKey(t, "ada", true)
		require.Equal(t, joinReply, f.sendOne(t, "ada", sign(t, joinMessage, sharedKey, "00aa")))
		for i, line := range []string{"M2|W1>O1|A|T0|-|-|-|0|S0|-|pid=what", "M3|W1>O1|U|T9|-|R|-|50%"} {
			signed, err := wire.Auth{Session: "S0", Nonce: fmt.Sprintf("00a%d", i)}.Sign(line, []byte(sharedKey))
			require.NoError(t, err)
			a := f.Receive(t.Context(), peer("ada"), []byte(signed), 0)
			require.True(t, a.IsError)
			require.False(t, a.Unauthenticated, string(a.Body))
			require.NoError(t, wire.Verify(string(a.Body), []byte(sharedKey)), "the reply is signed: %s", a.Body)
			a = f.Receive(t.Context(), peer("ada"), []byte(signed), 0)
			require.Contains(t, string(a.Body), codes.ReasonReplay, "it was recorded as used")
		}
	})
	testOnDatabases(t, "is verified with the token that it carries", func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		f.issueKey(t, "ada", true)
		line := sign(t, "M1|W1>O1|J|T0|-|-|-|0|S0|-|token=sesame;caps=web_search", sharedKey, "00aa")
		require.Equal(t, joinReply, f.sendOne(t, "ada", line))
	})
}

// TestSignedReplies: every message of O1 to a signing agent is signed, with a nonce of its own and
// the session of the message.
func TestSignedReplies(t *testing.T) {
	t.Parallel()
	requireSigned := func(t *testing.T, line string) wire.Message {
		t.Helper()
		require.NoError(t, wire.Verify(line, []byte(sharedKey)), line)
		m, err := wire.Parse(line)
		require.NoError(t, err)
		want := m.Context
		if want == "" {
			want = "S0"
		}
		require.Equal(t, want, m.Auth.Session)
		return m
	}
	testOnDatabases(t, "are signed where the key is required", func(t *testing.T, f *fixture) {
		f.agent(t, "ada", "web_search")
		f.agent(t, "bob", "web_search")
		f.issueKey(t, "ada", true)
		requireSigned(t, f.send(t, "ada", sign(t, joinMessage, sharedKey, "00aa"), 0)[0])
		nonces := map[string]bool{}
		for i := range 3 {
			f.sendOne(t, "user", fmt.Sprintf("M%d|User>W1|R|-|-|-|-|0|-|-|call=web_search;n=%d", i+1, i))
			work := requireSigned(t, f.receive(t, "ada")[0])
			require.Equal(t, wire.Request, work.Type)
			nonces[work.Auth.Nonce+work.Context] = true
			done := fmt.Sprintf("M%d|W1>O1|S|%s|-|D|-|0|%s|-|n=%d", i+2, work.Task, work.Context, i)
			requireSigned(t, f.send(t, "ada", sign(t, done, sharedKey, "00aa"), 0)[0])
		}
		require.Len(t, nonces, 3)
		rejected := requireSigned(t, f.send(t, "ada", sign(t, "M9|W1>O1|S|T1|-|D|-|0|S99|-|-", sharedKey, "00aa"), 0)[0])
		require.Equal(t, codes.E42, rejected.Err, "an error in reply to an authenticated message is signed too")
		reply := f.send(t, "bob", strings.ReplaceAll(joinMessage, "W1", "W2"), 0)[0]
		require.NotContains(t, reply, "auth=", "messages to an agent that need not sign are not signed")
	})
	testOnDatabases(t, "are signed where the agent is on another machine", func(t *testing.T, f *fixture) {
		f.agent(t, "ada", "web_search")
		f.issueKey(t, "ada", false)
		remote := protocol.Peer{Principal: principal("ada"), Agent: models.Agent{ID: "ada"}, Remote: true}
		a := f.Receive(t.Context(), remote, []byte(joinMessage), 0)
		require.Contains(t, string(a.Body), "reason="+codes.ReasonUnsigned)
		a = f.Receive(t.Context(), remote, []byte(sign(t, joinMessage+";token=sesame", sharedKey, "00aa")), 0)
		require.Contains(t, string(a.Body), "reason=token;", "a token must not cross the network")
		a = f.Receive(t.Context(), remote, []byte(sign(t, joinMessage, sharedKey, "00aa")), 0)
		requireSigned(t, string(a.Body))
		_, err := f.work.Join(t.Context(), "ada", orchestrator.JoinRequest{Protocol: v5.Name, Transport: "tcp", Concurrency: 1})
		require.NoError(t, err)
		f.sendOne(t, "user", "M1|User>W1|R|-|-|-|-|0|-|-|call=web_search")
		var all []models.InboxMessage
		require.Eventually(t, func() bool {
			all, err = f.work.Messages(t.Context(), "ada", 10)
			return err != nil || len(all) > 0
		}, time.Minute, 5*time.Millisecond)
		require.NoError(t, err)
		lines, err := f.Render(t.Context(), remote, all[0], 0)
		require.NoError(t, err)
		requireSigned(t, string(lines[0]))
		require.NoError(t, f.keys.Revoke(t.Context(), principal("admin"), "ada", auth.HMACSHA256))
		_, err = f.Render(t.Context(), remote, all[0], 0)
		require.ErrorContains(t, err, "no key", "nothing is sent to another machine without a signature")
	})
	testOnDatabases(t, "cannot be sent back as the agent's own messages", func(t *testing.T, f *fixture) {
		f.agent(t, "ada", "web_search")
		f.issueKey(t, "ada", true)
		f.send(t, "ada", sign(t, joinMessage+";concurrency=2", sharedKey, "00aa"), 0)
		_, err := f.work.Join(t.Context(), "ada", orchestrator.JoinRequest{Protocol: v5.Name, Transport: "websocket", Concurrency: 2})
		require.NoError(t, err)
		f.sendOne(t, "user", "M1|User>W1|R|-|-|-|-|0|-|-|call=web_search")
		work := requireSigned(t, f.receive(t, "ada")[0])
		handoff := fmt.Sprintf("M2|W1>W1|X|%s|-|R|-|1|%s|-|call=web_search", work.Task, work.Context)
		f.send(t, "ada", sign(t, handoff, sharedKey, "00aa"), 0)
		got := requireSigned(t, f.receive(t, "ada")[0])
		require.Equal(t, "O1", got.From.String(), "the agent has handed off to itself")
		require.Equal(t, wire.Handoff, got.Type)
	})
}

// TestSignatureIsNotStored: neither the signature nor the key is stored with a message or
// forwarded.
func TestSignatureIsNotStored(t *testing.T) {
	t.Parallel()
	testOnDatabases(t, "in requests to other agents", func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		f.agent(t, "bob", "web_search")
		f.issueKey(t, "ada", true)
		f.send(t, "bob", "M1|W2>O1|J|T0|-|-|-|0|S0|-|-", 0)
		f.send(t, "ada", sign(t, "M1|W1>O1|J|T0|-|-|-|0|S0|-|-", sharedKey, "00aa"), 0)
		replies := f.send(t, "ada", sign(t, "M2|W1>O1|R|-|-|-|-|0|-|-|call=web_search;q=x", sharedKey, "beef"), 0)
		require.Contains(t, replies[0], "accepted")
		received := f.receive(t, "bob")
		require.Len(t, received, 1)
		require.NotContains(t, received[0], "auth")
		m, err := wire.Parse(received[0])
		require.NoError(t, err)
		require.Contains(t, f.sendOne(t, "bob", fmt.Sprintf("M2|W2>O1|Q|%s|-|-|-|0|%s|-|ref=%s:params", m.Task, m.Context, m.Task)), "of=1")
		open, err := f.work.OpenTasksOf(t.Context(), "bob")
		require.NoError(t, err)
		require.Len(t, open, 1)
		require.NotContains(t, fmt.Sprintf("%s%s", open[0].Input.Parameters, open[0].Input.Meta), "auth")
		require.NotContains(t, fmt.Sprintf("%s%s", open[0].Input.Parameters, open[0].Input.Meta), ":beef:")
	})
}
