package transport_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/httpkit"
	"comet/internal/protocol/v5/shortid"
	"comet/internal/transport"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// sharedKey is the key of the agents.
const sharedKey = "a key that was agreed on"

// allRemote returns options that treat every address as another machine.
func allRemote() transport.TCPOptions {
	return transport.TCPOptions{IsLocal: func(netip.Addr) bool { return false }}
}

// issueKey gives an agent the shared key, and with it a number.
func (f *v5Fixture) issueKey(t *testing.T, id string, required bool) {
	t.Helper()
	_, err := f.keys.Issue(t.Context(), models.System(), id, auth.AgentKeyDraft{Key: new(sharedKey), Required: &required})
	require.NoError(t, err)
	_, err = shortid.AgentNumber(t.Context(), f.DB.Store, id) // as the API does with a new key
	require.NoError(t, err)
}

// sign returns a line with a signature.
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

// nextSigned returns the next line, which must be signed, without its signature.
func (c *v5Client) nextSigned() string {
	c.t.Helper()
	text := c.next()
	require.NoError(c.t, wire.Verify(text, []byte(sharedKey)), text)
	text, _, _ = strings.Cut(text, ";auth=")
	return text
}

// refusalOf sends a first line on a new connection and returns the complete reply.
func (f *v5Fixture) refusalOf(t *testing.T, first string) string {
	t.Helper()
	c, _ := f.dialTCP(t)
	c.sendLine(first)
	return withoutNumbers(strings.Join(c.readUntilClosed(), "\n"))
}

// refusalFrom is refusalOf for a connection from another address of this machine.
func (f *v5Fixture) refusalFrom(t *testing.T, address, first string) string {
	t.Helper()
	conn := f.dialFrom(t, address)
	_, err := fmt.Fprintln(conn, first)
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(all)
}

// dialFrom opens a connection from an address of this machine.
func (f *v5Fixture) dialFrom(t *testing.T, address string) net.Conn {
	t.Helper()
	at := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := at.DialContext(t.Context(), "tcp", f.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
	return conn
}

const heartbeatFormat = "M%d|W1>O1|H|T0|-|-|-|0|S0|-|load=1%%"

// TestRemoteAgent (PROTOCOL_V5 §11; decisions: “off loopback every line carries auth=”).
func TestRemoteAgent(t *testing.T) {
	t.Parallel()
	runV5Case(t, "joins and works with signatures in both directions", transport.Options{}, allRemote(), func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		c, _ := f.dialTCP(t)
		c.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, c.nextSigned(), "|A|T0|-|D|-|0|S0|-|registered;id=W1;")
		f.WaitForWorker(t, "ada", online)
		f.submit(t, "ada")
		work, err := wire.Parse(c.nextSigned())
		require.NoError(t, err)
		require.Equal(t, wire.Request, work.Type)
		done := fmt.Sprintf("M2|W1>O1|S|%s|-|D|-|0|%s|-|n=1", work.Task, work.Context)
		for line, reason := range map[string]string{
			done:                             codes.ReasonUnsigned,
			sign(t, join, sharedKey, "00ab"): codes.ReasonReplay,
			sign(t, done, "another", "00aa"): codes.ReasonSignature,
		} {
			c.sendLine(line)
			require.Regexp(t, `\|F\|E90\|.*\|reason=`+reason+";", c.next(), "the connection continues")
		}
		c.sendLine(sign(t, strings.Replace(done, "W1", "W2", 1), sharedKey, "00ac"))
		require.Contains(t, c.next(), "|F|E13|", "the number of another agent")
		c.sendLine(sign(t, done, sharedKey, "00aa"))
		require.Contains(t, c.nextSigned(), "|A|"+work.Task.String()+"|", "the refused lines had no effect")
		c.sendLine(sign(t, "M3|W1>O1|R|-|-|-|-|0|-|-|call=web_search", sharedKey, "00aa"))
		require.Contains(t, c.nextSigned(), "|F|E90|0|-|-|reason=scope;", "a key does not permit submitting tasks")
		require.Empty(t, f.names, "no agent is enrolled")
	})
	runV5Case(t, "an invalid first line is refused and changes nothing", transport.Options{}, allRemote(), func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		c, _ := f.dialTCP(t)
		taken := sign(t, join, sharedKey, "00aa")
		c.sendLine(taken)
		require.Contains(t, c.nextSigned(), "registered")
		before := f.WaitForWorker(t, "ada", online).ConnectionID
		next := strings.Replace(join, "M1", "M2", 1)
		for first, reason := range map[string]string{
			next:                             codes.ReasonUnsigned,
			next + ";name=shouter":           codes.ReasonUnsigned,
			next + ";token=" + token:         "token",
			sign(t, next, "another", "00aa"): codes.ReasonSignature,
			taken:                            codes.ReasonReplay,
			strings.Replace(taken, "00aa", "00ab", 1):                          codes.ReasonReplay,
			sign(t, strings.Replace(next, "W1", "W7", 1), sharedKey, "00aa"):   codes.ReasonNoKey,
			sign(t, strings.Replace(next, "W1", "W1.9", 1), sharedKey, "00aa"): codes.ReasonNoKey,
			sign(t, next+";token="+token, sharedKey, "00aa"):                   "token",
		} {
			got := f.refusalOf(t, first)
			require.Contains(t, got, "|F|E90|0|S0|-|reason="+reason+";", first)
			require.NotContains(t, got, token)
			require.NotContains(t, got, ";auth", "a refusal of an unverified line is not signed")
		}
		require.Empty(t, f.names, "no agent is enrolled")
		require.Equal(t, before, f.CachedWorker("ada").ConnectionID, "the older connection continues")
		c.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), sharedKey, "00aa"))
		require.Empty(t, c.signedBarrier(t, 3))
	})
	runV5Case(t, "an unsigned line acknowledges nothing", transport.Options{}, allRemote(), func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		for i, last := range []string{"nonsense", "M3|W1>O1|H|T0|-|-|-|0|S0|-|-", sign(t, fmt.Sprintf(heartbeatFormat, 9), sharedKey, "00aa")} {
			c, _ := f.dialTCP(t)
			c.sendLine(sign(t, fmt.Sprintf("M%d%s", i+1, join[2:]), sharedKey, "00aa"))
			require.Contains(t, c.nextSigned(), "registered")
			if i == 0 {
				f.enqueue(t, "ada", 1)
			}
			require.Contains(t, c.nextSigned(), "|U|")
			c.sendLine(last)
			if i < 2 {
				require.Contains(t, c.next(), "|E|")
			} else {
				require.Empty(t, c.signedBarrier(t, 10))
			}
			c.close()
			f.waitForMetric(t, 0, "comet_transport_connections", transport.TCP) // every acknowledgement is committed
			all, err := f.Messages(t.Context(), "ada", 10)
			require.NoError(t, err)
			require.Len(t, all, map[bool]int{true: 1, false: 0}[i < 2], last)
		}
	})
	runV5Case(t, "too many invalid signatures throttle the address", transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3})}, allRemote(), func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		for i := range 3 {
			require.Contains(t, f.refusalOf(t, sign(t, join, "another", fmt.Sprintf("%04d", i))), codes.ReasonSignature)
			f.waitForMetric(t, i+1, "comet_transport_authentication_failures_total")
		}
		require.Contains(t, f.refusalOf(t, sign(t, join, sharedKey, "00aa")), "|F|E31|", "even with the right key")
	})
	runV5Case(t, "too many invalid signatures end the connection", transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 2})}, allRemote(), func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		c, _ := f.dialTCP(t)
		c.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, c.nextSigned(), "registered")
		c.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), "another", "00aa"))
		require.Contains(t, c.next(), codes.ReasonSignature)
		c.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), "another", "00ab"))
		require.Contains(t, strings.Join(c.readUntilClosed(), "\n"), codes.ReasonSignature)
		f.WaitForWorker(t, "ada", offline)
	})
	runV5Case(t, "a revoked key ends the connection", transport.Options{Heartbeat: testHeartbeat}, allRemote(), func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		c, _ := f.dialTCP(t)
		c.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, c.nextSigned(), "registered")
		f.WaitForWorker(t, "ada", online)
		require.NoError(t, f.keys.Revoke(t.Context(), models.System(), "ada", auth.HMACSHA256))
		require.Empty(t, c.readUntilClosed())
	})
}

// signedBarrier sends a query and returns the lines received before its reply.
func (c *v5Client) signedBarrier(t *testing.T, number int) (before []string) {
	t.Helper()
	c.sendLine(sign(t, fmt.Sprintf("M%d|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W1;status=all", number), sharedKey, "0b0b"))
	for {
		got := c.nextSigned()
		if strings.Contains(got, "agents=W1") {
			return before
		}
		before = append(before, got)
	}
}

// TestLocalSignature: any agent may sign, and some agents must.
func TestLocalSignature(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	runV5Case(t, "covers the line with its token, which is not logged", transport.Options{Logger: logger}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		f.issueKey(t, "ada", true)
		c, _ := f.dialTCP(t)
		c.sendLine(sign(t, join+";token="+token, sharedKey, "beef"))
		require.Contains(t, c.nextSigned(), "registered;id=W1")
		c.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), "a wrong key that is long", "beef"))
		require.Contains(t, c.next(), codes.ReasonSignature)
		require.NotContains(t, strings.Join(f.protocol.lines, "\n"), token)
		mu.Lock()
		defer mu.Unlock()
		for _, secret := range []string{token, sharedKey, "auth=", ":beef:"} {
			require.NotContains(t, log.String(), secret)
		}
	})
	runV5Case(t, "an invalid or missing one does not end the older connection", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		f.issueKey(t, "ada", true)
		c := f.dialOver(t, transport.WebSocket, token)
		c.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, c.nextSigned(), "registered;id=W1")
		before := f.WaitForWorker(t, "ada", online).ConnectionID
		next := strings.Replace(join, "M1", "M2", 1)
		for first, reason := range map[string]string{
			next:                             codes.ReasonUnsigned,
			sign(t, next, "another", "00aa"): codes.ReasonSignature,
			sign(t, join, sharedKey, "00aa"): codes.ReasonReplay,
		} {
			for _, via := range []string{transport.WebSocket, transport.TCP} {
				if via == transport.TCP && first == sign(t, join, sharedKey, "00aa") {
					continue // with a token added it would be a different line
				}
				other := f.dialOver(t, via, token)
				got := first
				if via == transport.TCP && reason == codes.ReasonUnsigned {
					got += ";token=" + token
				}
				other.sendLine(got)
				require.Contains(t, strings.Join(other.readUntilClosed(), ""), "|F|E90|0|S0|-|reason="+reason+";", "%s %s", via, first)
			}
		}
		require.Equal(t, before, f.CachedWorker("ada").ConnectionID)
		require.Empty(t, c.signedBarrier(t, 3), "the connection continues")

		c = f.dialOver(t, transport.WebSocket, token)
		c.sendLine(sign(t, next, sharedKey, "00ab"))
		require.Contains(t, c.nextSigned(), "registered;id=W1")
		f.WaitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID != before })
	})
	runV5Case(t, "identifies an agent without a token", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		c, _ := f.dialTCP(t)
		c.sendLine(sign(t, join+";name=eve", sharedKey, "00aa"))
		require.Contains(t, c.next(), "registered;id=W1")
		require.Empty(t, f.names, "no agent is enrolled")
		require.Contains(t, f.refusalOf(t, sign(t, join+";name=eve", "another", "00aa")), codes.ReasonSignature)
		require.Empty(t, f.names, "a refused line enrolls no agent either")
	})
	runV5Case(t, "does not permit submitting tasks", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		token := f.token(t, "ada", models.ScopeMessagesSend).Secret
		f.issueKey(t, "ada", false)
		const ask = "M2|W1>O1|R|-|-|-|-|0|-|-|call=web_search"
		c, _ := f.dialTCP(t)
		c.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, c.next(), "registered;id=W1")
		c.sendLine(ask)
		require.Contains(t, c.next(), "|F|E90|0|-|-|reason=scope;")
		c, _ = f.dialTCP(t)
		c.sendLine(join + ";token=" + token)
		require.Contains(t, c.next(), "registered;id=W1")
		c.sendLine(ask)
		require.NotContains(t, c.next(), "reason=scope", "the token permits it")
	})
	runV5Case(t, "permits submitting tasks for an enrolled agent", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		for i, first := range []string{join + ";name=ada", sign(t, join, sharedKey, "00aa")} {
			c, _ := f.dialTCP(t)
			c.sendLine(first)
			require.Contains(t, c.next(), "registered;id=W1")
			c.sendLine(fmt.Sprintf("M%d|W1>O1|R|-|-|-|-|0|-|-|call=web_search", i+2))
			require.NotContains(t, c.next(), "reason=scope")
		}
	})
	runV5Case(t, "is not verified for a throttled address", transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3})}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		f.joinOver(t, transport.TCP, token, "")
		for i := range 3 {
			require.Contains(t, f.refusalOf(t, sign(t, join, "another", fmt.Sprintf("%04d", i))), codes.ReasonSignature)
		}
		require.Contains(t, f.refusalOf(t, sign(t, join, "another", "0009")), "|F|E31|")
		require.Contains(t, f.refusalOf(t, sign(t, join, sharedKey, "00aa")), "|F|E31|", "even with the right key")
		f.agent(t, "bob")
		f.issueKey(t, "bob", false)
		require.Contains(t, f.refusalOf(t, sign(t, strings.Replace(join, "W1", "W2", 1), sharedKey, "00aa")), "|F|E31|", "also for another agent")
		f.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
		f.joinOver(t, transport.TCP, token, "") // identified by its token
	})
	runV5Case(t, "is not verified for a throttled agent", transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3})}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		f.issueKey(t, "ada", false)
		for i := range 3 {
			from := fmt.Sprintf("127.0.0.%d", i+2)
			require.Contains(t, f.refusalFrom(t, from, sign(t, join, "another", fmt.Sprintf("%04d", i))), codes.ReasonSignature, from)
		}
		require.Contains(t, f.refusalFrom(t, "127.0.0.9", sign(t, join, sharedKey, "00aa")), "|F|E31|")
	})
	runV5Case(t, "is required in the first line of an agent that must sign", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		f.issueKey(t, "ada", true)
		c, _ := f.dialTCP(t)
		c.sendLine(sign(t, join+";token="+token, sharedKey, "00aa"))
		require.Contains(t, c.nextSigned(), "registered")
		require.Contains(t, f.refusalOf(t, join+";token="+token), codes.ReasonUnsigned)
		require.Contains(t, f.refusalOf(t, join+";name=ada"), codes.ReasonUnsigned)
		require.Empty(t, c.signedBarrier(t, 2), "its connection continues")
	})
	runV5Case(t, "an invalid one counts over HTTP too", transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3})}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		f.issueKey(t, "ada", true)
		var lines []string
		for i := range 5 {
			lines = append(lines, sign(t, fmt.Sprintf(heartbeatFormat, i+1), "another", "00aa"))
		}
		resp := f.do(t, "POST", "/api/v5/messages", token, strings.Join(lines, "\n"), "Content-Type", "text/plain")
		require.Equal(t, 401, resp.StatusCode)
		got := strings.Split(strings.TrimSpace(resp.body), "\n")
		require.Len(t, got, 5)
		for i, want := range []string{"E90", "E90", "E90", "E31", "E31"} {
			require.Contains(t, got[i], "|F|"+want+"|")
		}
		f.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
		require.Equal(t, 429, f.do(t, "POST", "/api/v5/messages", token, lines[0], "Content-Type", "text/plain").StatusCode,
			"the token is no longer exempt from throttling")
	})
	runV5Case(t, "too many invalid ones end a WebSocket", transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 2})}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		f.issueKey(t, "ada", true)
		c := f.dialOver(t, transport.WebSocket, token)
		c.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, c.nextSigned(), "registered")
		c.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), "another", "00aa"))
		require.Contains(t, c.next(), codes.ReasonSignature)
		c.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 3), "another", "00aa"))
		require.Contains(t, strings.Join(c.readUntilClosed(), "\n"), codes.ReasonSignature)
	})
}
