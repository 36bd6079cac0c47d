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

	"comet/internal/transport"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// sharedKey is one that was agreed on elsewhere.
const sharedKey = "a key that was agreed on"

// allRemote has every address be another machine's.
func allRemote() transport.TCPOptions {
	return transport.TCPOptions{IsLocal: func(netip.Addr) bool { return false }}
}

// issueKey gives an agent the key, and with it a number.
func (h *v5Fixture) issueKey(t *testing.T, id string, required bool) {
	t.Helper()
	_, err := h.keys.Issue(t.Context(), models.System(), id, models.AgentKeyDraft{Key: new(sharedKey), Required: &required})
	require.NoError(t, err)
}

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

// nextSigned returns the next line, which has to be signed, without its signature.
func (g *v5Client) nextSigned() string {
	g.t.Helper()
	text := g.next()
	require.NoError(g.t, wire.Verify(text, []byte(sharedKey)), text)
	text, _, _ = strings.Cut(text, ";auth=")
	return text
}

// refusalOf says a first line on a connection of its own and returns all that is answered.
func (h *v5Fixture) refusalOf(t *testing.T, first string) string {
	t.Helper()
	g, _ := h.dialTCP(t)
	g.sendLine(first)
	return withoutNumbers(strings.Join(g.readUntilClosed(), "\n"))
}

// refusalFrom is sentAway for a connection from another address of this machine.
func (h *v5Fixture) refusalFrom(t *testing.T, address, first string) string {
	t.Helper()
	conn := h.dialFrom(t, address)
	_, err := fmt.Fprintln(conn, first)
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(all)
}

// dialFrom opens a connection from an address of this machine.
func (h *v5Fixture) dialFrom(t *testing.T, address string) net.Conn {
	t.Helper()
	at := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := at.DialContext(t.Context(), "tcp", h.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
	return conn
}

const heartbeatFormat = "M%d|W1>O1|H|T0|-|-|-|0|S0|-|load=1%%"

// TestAnAgentOnAnotherMachine (PROTOCOL_V5 §11; decisions: “off loopback every line carries
// auth=”).
func TestAnAgentOnAnotherMachine(t *testing.T) {
	t.Parallel()
	runV5Case(t, "joins and works, and all that is said is signed", transport.Options{}, allRemote(), func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		g, _ := h.dialTCP(t)
		g.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, g.nextSigned(), "|A|T0|-|D|-|0|S0|-|registered;id=W1;")
		h.waitForWorker(t, "ada", online)
		h.submit(t, "ada")
		work, err := wire.Parse(g.nextSigned())
		require.NoError(t, err)
		require.Equal(t, wire.Request, work.Type)
		done := fmt.Sprintf("M2|W1>O1|S|%s|-|D|-|0|%s|-|n=1", work.Task, work.Context)
		for line, reason := range map[string]string{
			done:                             wire.ReasonUnsigned,
			sign(t, join, sharedKey, "00ab"): wire.ReasonReplay,
			sign(t, done, "another", "00aa"): wire.ReasonSignature,
		} {
			g.sendLine(line)
			require.Regexp(t, `\|F\|E90\|.*\|reason=`+reason+";", g.next(), "the connection goes on")
		}
		g.sendLine(sign(t, strings.Replace(done, "W1", "W2", 1), sharedKey, "00ac"))
		require.Contains(t, g.next(), "|F|E13|", "a foreign number")
		g.sendLine(sign(t, done, sharedKey, "00aa"))
		require.Contains(t, g.nextSigned(), "|A|"+work.Task.String()+"|", "what was refused has changed nothing")
		g.sendLine(sign(t, "M3|W1>O1|R|-|-|-|-|0|-|-|call=web_search", sharedKey, "00aa"))
		require.Contains(t, g.nextSigned(), "|F|E90|0|-|-|reason=scope;", "a key does not allow to ask for work")
		require.Empty(t, h.names, "nobody is registered")
	})
	runV5Case(t, "is sent away with a first line that it did not sign, and changes nothing", transport.Options{}, allRemote(), func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		g, _ := h.dialTCP(t)
		taken := sign(t, join, sharedKey, "00aa")
		g.sendLine(taken)
		require.Contains(t, g.nextSigned(), "registered")
		before := h.waitForWorker(t, "ada", online).ConnectionID
		next := strings.Replace(join, "M1", "M2", 1)
		for first, reason := range map[string]string{
			next:                             wire.ReasonUnsigned,
			next + ";name=shouter":           wire.ReasonUnsigned,
			next + ";token=" + token:         "token",
			sign(t, next, "another", "00aa"): wire.ReasonSignature,
			taken:                            wire.ReasonReplay,
			strings.Replace(taken, "00aa", "00ab", 1):                          wire.ReasonReplay,
			sign(t, strings.Replace(next, "W1", "W7", 1), sharedKey, "00aa"):   wire.ReasonNoKey,
			sign(t, strings.Replace(next, "W1", "W1.9", 1), sharedKey, "00aa"): wire.ReasonNoKey,
			sign(t, next+";token="+token, sharedKey, "00aa"):                   "token",
		} {
			said := h.refusalOf(t, first)
			require.Contains(t, said, "|F|E90|0|S0|-|reason="+reason+";", first)
			require.NotContains(t, said, token)
			require.NotContains(t, said, ";auth", "nobody has lines signed by asking wrongly")
		}
		require.Empty(t, h.names, "nobody is registered")
		require.Equal(t, before, h.CachedWorker("ada").ConnectionID, "and the line that there is goes on")
		g.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), sharedKey, "00aa"))
		require.Empty(t, g.signedBarrier(t, 3))
	})
	runV5Case(t, "has received nothing by a line that it did not sign", transport.Options{}, allRemote(), func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		for i, last := range []string{"nonsense", "M3|W1>O1|H|T0|-|-|-|0|S0|-|-", sign(t, fmt.Sprintf(heartbeatFormat, 9), sharedKey, "00aa")} {
			g, _ := h.dialTCP(t)
			g.sendLine(sign(t, fmt.Sprintf("M%d%s", i+1, join[2:]), sharedKey, "00aa"))
			require.Contains(t, g.nextSigned(), "registered")
			if i == 0 {
				h.enqueue(t, "ada", 1)
			}
			require.Contains(t, g.nextSigned(), "|U|")
			g.sendLine(last)
			if i < 2 {
				require.Contains(t, g.next(), "|E|")
			} else {
				require.Empty(t, g.signedBarrier(t, 10))
			}
			g.close()
			h.waitForMetric(t, 0, "comet_transport_connections", transport.TCP) // all that it acknowledged is noted
			all, err := h.Messages(t.Context(), "ada", 10)
			require.NoError(t, err)
			require.Len(t, all, map[bool]int{true: 1, false: 0}[i < 2], last)
		}
	})
	runV5Case(t, "has to wait where it tries too many signatures", transport.Options{MaxFailures: 3}, allRemote(), func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		for i := range 3 {
			require.Contains(t, h.refusalOf(t, sign(t, join, "another", fmt.Sprintf("%04d", i))), wire.ReasonSignature)
			h.waitForMetric(t, i+1, "comet_transport_authentication_failures_total")
		}
		require.Contains(t, h.refusalOf(t, sign(t, join, sharedKey, "00aa")), "|F|E31|", "also with the right one")
	})
	runV5Case(t, "is off the line where it tries too many", transport.Options{MaxFailures: 2}, allRemote(), func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		g, _ := h.dialTCP(t)
		g.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, g.nextSigned(), "registered")
		g.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), "another", "00aa"))
		require.Contains(t, g.next(), wire.ReasonSignature)
		g.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), "another", "00ab"))
		require.Contains(t, strings.Join(g.readUntilClosed(), "\n"), wire.ReasonSignature)
		h.waitForWorker(t, "ada", offline)
	})
	runV5Case(t, "is off the line once its key is revoked", transport.Options{Heartbeat: testHeartbeat}, allRemote(), func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		g, _ := h.dialTCP(t)
		g.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, g.nextSigned(), "registered")
		h.waitForWorker(t, "ada", online)
		require.NoError(t, h.keys.Revoke(t.Context(), models.System(), "ada"))
		require.Empty(t, g.readUntilClosed())
	})
}

// signedBarrier returns what came before the answer to a question that is asked now.
func (g *v5Client) signedBarrier(t *testing.T, number int) (before []string) {
	t.Helper()
	g.sendLine(sign(t, fmt.Sprintf("M%d|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W1;status=all", number), sharedKey, "0b0b"))
	for {
		said := g.nextSigned()
		if strings.Contains(said, "agents=W1") {
			return before
		}
		before = append(before, said)
	}
}

// TestASignatureOnThisMachine: signing is for everybody, and has to be done by whoever is
// told to.
func TestASignatureOnThisMachine(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	runV5Case(t, "stands for the line with its token, which goes no further", transport.Options{Logger: logger}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		h.issueKey(t, "ada", true)
		g, _ := h.dialTCP(t)
		g.sendLine(sign(t, join+";token="+token, sharedKey, "beef"))
		require.Contains(t, g.nextSigned(), "registered;id=W1")
		g.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), "a wrong key that is long", "beef"))
		require.Contains(t, g.next(), wire.ReasonSignature)
		require.NotContains(t, strings.Join(h.protocol.lines, "\n"), token)
		mu.Lock()
		defer mu.Unlock()
		for _, secret := range []string{token, sharedKey, "auth=", ":beef:"} {
			require.NotContains(t, log.String(), secret)
		}
	})
	runV5Case(t, "that is wrong or missing does not end the line that there is", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		h.issueKey(t, "ada", true)
		g := h.dialOver(t, transport.WebSocket, token)
		g.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, g.nextSigned(), "registered;id=W1")
		before := h.waitForWorker(t, "ada", online).ConnectionID
		next := strings.Replace(join, "M1", "M2", 1)
		for first, reason := range map[string]string{
			next:                             wire.ReasonUnsigned,
			sign(t, next, "another", "00aa"): wire.ReasonSignature,
			sign(t, join, sharedKey, "00aa"): wire.ReasonReplay,
		} {
			for _, way := range []string{transport.WebSocket, transport.TCP} {
				if way == transport.TCP && first == sign(t, join, sharedKey, "00aa") {
					continue // said with a token it would be another line
				}
				other := h.dialOver(t, way, token)
				said := first
				if way == transport.TCP && reason == wire.ReasonUnsigned {
					said += ";token=" + token
				}
				other.sendLine(said)
				require.Contains(t, strings.Join(other.readUntilClosed(), ""), "|F|E90|0|S0|-|reason="+reason+";", "%s %s", way, first)
			}
		}
		require.Equal(t, before, h.CachedWorker("ada").ConnectionID)
		require.Empty(t, g.signedBarrier(t, 3), "and it goes on")

		g = h.dialOver(t, transport.WebSocket, token)
		g.sendLine(sign(t, next, sharedKey, "00ab"))
		require.Contains(t, g.nextSigned(), "registered;id=W1")
		h.waitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID != before })
	})
	runV5Case(t, "says who somebody is that has no token", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		g, _ := h.dialTCP(t)
		g.sendLine(sign(t, join+";name=eve", sharedKey, "00aa"))
		require.Contains(t, g.next(), "registered;id=W1")
		require.Empty(t, h.names, "nobody is registered")
		require.Contains(t, h.refusalOf(t, sign(t, join+";name=eve", "another", "00aa")), wire.ReasonSignature)
		require.Empty(t, h.names, "not by a line that is refused either")
	})
	runV5Case(t, "does not allow to ask for work", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		token := h.token(t, "ada", models.ScopeMessagesSend).Secret
		h.issueKey(t, "ada", false)
		const ask = "M2|W1>O1|R|-|-|-|-|0|-|-|call=web_search"
		g, _ := h.dialTCP(t)
		g.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, g.next(), "registered;id=W1")
		g.sendLine(ask)
		require.Contains(t, g.next(), "|F|E90|0|-|-|reason=scope;")
		g, _ = h.dialTCP(t)
		g.sendLine(join + ";token=" + token)
		require.Contains(t, g.next(), "registered;id=W1")
		g.sendLine(ask)
		require.NotContains(t, g.next(), "reason=scope", "as the token does")
	})
	itself := transport.TCPOptions{IsEnrolled: func(a models.Agent) bool { return a.ID == "ada" }}
	runV5Case(t, "allows what one that registered itself may without", transport.Options{}, itself, func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		for i, first := range []string{join + ";name=ada", sign(t, join, sharedKey, "00aa")} {
			g, _ := h.dialTCP(t)
			g.sendLine(first)
			require.Contains(t, g.next(), "registered;id=W1")
			g.sendLine(fmt.Sprintf("M%d|W1>O1|R|-|-|-|-|0|-|-|call=web_search", i+2))
			require.NotContains(t, g.next(), "reason=scope")
		}
	})
	runV5Case(t, "is not looked at after too many that were wrong from there", transport.Options{MaxFailures: 3}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		h.joinOver(t, transport.TCP, token, "")
		for i := range 3 {
			require.Contains(t, h.refusalOf(t, sign(t, join, "another", fmt.Sprintf("%04d", i))), wire.ReasonSignature)
		}
		require.Contains(t, h.refusalOf(t, sign(t, join, "another", "0009")), "|F|E31|")
		require.Contains(t, h.refusalOf(t, sign(t, join, sharedKey, "00aa")), "|F|E31|", "also not the right one")
		h.agent(t, "bob")
		h.issueKey(t, "bob", false)
		require.Contains(t, h.refusalOf(t, sign(t, strings.Replace(join, "W1", "W2", 1), sharedKey, "00aa")), "|F|E31|", "nor that of another agent")
		h.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
		h.joinOver(t, transport.TCP, token, "") // which says who it is without one
	})
	runV5Case(t, "is not looked at after too many that were wrong for the agent", transport.Options{MaxFailures: 3}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		h.issueKey(t, "ada", false)
		for i := range 3 {
			from := fmt.Sprintf("127.0.0.%d", i+2)
			require.Contains(t, h.refusalFrom(t, from, sign(t, join, "another", fmt.Sprintf("%04d", i))), wire.ReasonSignature, from)
		}
		require.Contains(t, h.refusalFrom(t, "127.0.0.9", sign(t, join, sharedKey, "00aa")), "|F|E31|")
	})
	runV5Case(t, "is missed in the first line of whoever has to sign", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		h.issueKey(t, "ada", true)
		g, _ := h.dialTCP(t)
		g.sendLine(sign(t, join+";token="+token, sharedKey, "00aa"))
		require.Contains(t, g.nextSigned(), "registered")
		require.Contains(t, h.refusalOf(t, join+";token="+token), wire.ReasonUnsigned)
		require.Contains(t, h.refusalOf(t, join+";name=ada"), wire.ReasonUnsigned)
		require.Empty(t, g.signedBarrier(t, 2), "its line goes on")
	})
	runV5Case(t, "that is wrong counts over HTTP too", transport.Options{MaxFailures: 3}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		h.issueKey(t, "ada", true)
		var lines []string
		for i := range 5 {
			lines = append(lines, sign(t, fmt.Sprintf(heartbeatFormat, i+1), "another", "00aa"))
		}
		got := h.do(t, "POST", "/api/v5/messages", token, strings.Join(lines, "\n"), "Content-Type", "text/plain")
		require.Equal(t, 401, got.StatusCode)
		said := strings.Split(strings.TrimSpace(got.body), "\n")
		require.Len(t, said, 5)
		for i, want := range []string{"E90", "E90", "E90", "E31", "E31"} {
			require.Contains(t, said[i], "|F|"+want+"|")
		}
		h.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
		require.Equal(t, 429, h.do(t, "POST", "/api/v5/messages", token, lines[0], "Content-Type", "text/plain").StatusCode,
			"and its token is not known any more")
	})
	runV5Case(t, "that is wrong too often ends a WebSocket", transport.Options{MaxFailures: 2}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		h.issueKey(t, "ada", true)
		g := h.dialOver(t, transport.WebSocket, token)
		g.sendLine(sign(t, join, sharedKey, "00aa"))
		require.Contains(t, g.nextSigned(), "registered")
		g.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 2), "another", "00aa"))
		require.Contains(t, g.next(), wire.ReasonSignature)
		g.sendLine(sign(t, fmt.Sprintf(heartbeatFormat, 3), "another", "00aa"))
		require.Contains(t, strings.Join(g.readUntilClosed(), "\n"), wire.ReasonSignature)
	})
}
