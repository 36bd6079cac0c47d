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

// theKey is one that was agreed on elsewhere.
const theKey = "a key that was agreed on"

// elsewhere has every address be another machine's.
func elsewhere() transport.ListenerOptions {
	return transport.ListenerOptions{Local: func(netip.Addr) bool { return false }}
}

// signs gives an agent the key, and with it a number.
func (h *inn) signs(t *testing.T, id string, required bool) {
	t.Helper()
	_, err := h.keys.Issue(t.Context(), models.System(), id, models.AgentKeyDraft{Key: new(theKey), Required: &required})
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

// hearSigned returns the next line, which has to be signed, without its signature.
func (g *talker) hearSigned() string {
	g.t.Helper()
	text := g.hear()
	require.NoError(g.t, wire.Verify(text, []byte(theKey)), text)
	text, _, _ = strings.Cut(text, ";auth=")
	return text
}

// sentAway says a first line on a connection of its own and returns all that is answered.
func (h *inn) sentAway(t *testing.T, first string) string {
	t.Helper()
	g, _ := h.dialLine(t)
	g.say(first)
	return unnumbered(strings.Join(g.over(), "\n"))
}

// sentFrom is sentAway for a connection from another address of this machine.
func (h *inn) sentFrom(t *testing.T, address, first string) string {
	t.Helper()
	conn := h.dialFrom(t, address)
	_, err := fmt.Fprintln(conn, first)
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(all)
}

// dialFrom opens a connection from an address of this machine.
func (h *inn) dialFrom(t *testing.T, address string) net.Conn {
	t.Helper()
	at := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := at.DialContext(t.Context(), "tcp", h.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(enough)))
	return conn
}

const heartbeat = "M%d|W1>O1|H|T0|-|-|-|0|S0|-|load=1%%"

// TestAnAgentOnAnotherMachine (PROTOCOL_V5 §11; decisions: “off loopback every line carries
// auth=”).
func TestAnAgentOnAnotherMachine(t *testing.T) {
	t.Parallel()
	plainRule(t, "joins and works, and all that is said is signed", transport.Options{}, elsewhere(), func(t *testing.T, h *inn) {
		h.first(t, "ada")
		h.signs(t, "ada", false)
		g, _ := h.dialLine(t)
		g.say(sign(t, join, theKey, "00aa"))
		require.Contains(t, g.hearSigned(), "|A|T0|-|D|-|0|S0|-|registered;id=W1;")
		h.worker(t, "ada", online)
		h.submit(t, "ada")
		work, err := wire.Parse(g.hearSigned())
		require.NoError(t, err)
		require.Equal(t, wire.Request, work.Type)
		done := fmt.Sprintf("M2|W1>O1|S|%s|-|D|-|0|%s|-|n=1", work.Task, work.Context)
		for line, reason := range map[string]string{
			done:                             wire.ReasonUnsigned,
			sign(t, join, theKey, "00ab"):    wire.ReasonReplay,
			sign(t, done, "another", "00aa"): wire.ReasonSignature,
		} {
			g.say(line)
			require.Regexp(t, `\|F\|E90\|.*\|reason=`+reason+";", g.hear(), "the connection goes on")
		}
		g.say(sign(t, strings.Replace(done, "W1", "W2", 1), theKey, "00ac"))
		require.Contains(t, g.hear(), "|F|E13|", "a foreign number")
		g.say(sign(t, done, theKey, "00aa"))
		require.Contains(t, g.hearSigned(), "|A|"+work.Task.String()+"|", "what was refused has changed nothing")
		g.say(sign(t, "M3|W1>O1|R|-|-|-|-|0|-|-|call=web_search", theKey, "00aa"))
		require.Contains(t, g.hearSigned(), "|F|E90|0|-|-|reason=scope;", "a key does not allow to ask for work")
		require.Empty(t, h.names, "nobody is registered")
	})
	plainRule(t, "is sent away with a first line that it did not sign, and changes nothing", transport.Options{}, elsewhere(), func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		h.signs(t, "ada", false)
		g, _ := h.dialLine(t)
		taken := sign(t, join, theKey, "00aa")
		g.say(taken)
		require.Contains(t, g.hearSigned(), "registered")
		before := h.worker(t, "ada", online).ConnectionID
		next := strings.Replace(join, "M1", "M2", 1)
		for first, reason := range map[string]string{
			next:                             wire.ReasonUnsigned,
			next + ";name=shouter":           wire.ReasonUnsigned,
			next + ";token=" + token:         "token",
			sign(t, next, "another", "00aa"): wire.ReasonSignature,
			taken:                            wire.ReasonReplay,
			strings.Replace(taken, "00aa", "00ab", 1):                       wire.ReasonReplay,
			sign(t, strings.Replace(next, "W1", "W7", 1), theKey, "00aa"):   wire.ReasonNoKey,
			sign(t, strings.Replace(next, "W1", "W1.9", 1), theKey, "00aa"): wire.ReasonNoKey,
			sign(t, next+";token="+token, theKey, "00aa"):                   "token",
		} {
			said := h.sentAway(t, first)
			require.Contains(t, said, "|F|E90|0|S0|-|reason="+reason+";", first)
			require.NotContains(t, said, token)
			require.NotContains(t, said, ";auth", "nobody has lines signed by asking wrongly")
		}
		require.Empty(t, h.names, "nobody is registered")
		require.Equal(t, before, h.CachedWorker("ada").ConnectionID, "and the line that there is goes on")
		g.say(sign(t, fmt.Sprintf(heartbeat, 2), theKey, "00aa"))
		require.Empty(t, g.signedBarrier(t, 3))
	})
	plainRule(t, "has received nothing by a line that it did not sign", transport.Options{}, elsewhere(), func(t *testing.T, h *inn) {
		h.first(t, "ada")
		h.signs(t, "ada", false)
		for i, last := range []string{"nonsense", "M3|W1>O1|H|T0|-|-|-|0|S0|-|-", sign(t, fmt.Sprintf(heartbeat, 9), theKey, "00aa")} {
			g, _ := h.dialLine(t)
			g.say(sign(t, fmt.Sprintf("M%d%s", i+1, join[2:]), theKey, "00aa"))
			require.Contains(t, g.hearSigned(), "registered")
			if i == 0 {
				h.tell(t, "ada", 1)
			}
			require.Contains(t, g.hearSigned(), "|U|")
			g.say(last)
			if i < 2 {
				require.Contains(t, g.hear(), "|E|")
			} else {
				require.Empty(t, g.signedBarrier(t, 10))
			}
			g.drop()
			h.metricIs(t, 0, "comet_link_lines", transport.TCP) // all that it acknowledged is noted
			all, err := h.Messages(t.Context(), "ada", 10)
			require.NoError(t, err)
			require.Len(t, all, map[bool]int{true: 1, false: 0}[i < 2], last)
		}
	})
	plainRule(t, "has to wait where it tries too many signatures", transport.Options{MaxFailures: 3}, elsewhere(), func(t *testing.T, h *inn) {
		h.first(t, "ada")
		h.signs(t, "ada", false)
		for i := range 3 {
			require.Contains(t, h.sentAway(t, sign(t, join, "another", fmt.Sprintf("%04d", i))), wire.ReasonSignature)
			h.metricIs(t, i+1, "comet_link_authentication_failures_total")
		}
		require.Contains(t, h.sentAway(t, sign(t, join, theKey, "00aa")), "|F|E31|", "also with the right one")
	})
	plainRule(t, "is off the line where it tries too many", transport.Options{MaxFailures: 2}, elsewhere(), func(t *testing.T, h *inn) {
		h.first(t, "ada")
		h.signs(t, "ada", false)
		g, _ := h.dialLine(t)
		g.say(sign(t, join, theKey, "00aa"))
		require.Contains(t, g.hearSigned(), "registered")
		g.say(sign(t, fmt.Sprintf(heartbeat, 2), "another", "00aa"))
		require.Contains(t, g.hear(), wire.ReasonSignature)
		g.say(sign(t, fmt.Sprintf(heartbeat, 2), "another", "00ab"))
		require.Contains(t, strings.Join(g.over(), "\n"), wire.ReasonSignature)
		h.worker(t, "ada", offline)
	})
	plainRule(t, "is off the line once its key is revoked", transport.Options{Heartbeat: beat}, elsewhere(), func(t *testing.T, h *inn) {
		h.first(t, "ada")
		h.signs(t, "ada", false)
		g, _ := h.dialLine(t)
		g.say(sign(t, join, theKey, "00aa"))
		require.Contains(t, g.hearSigned(), "registered")
		h.worker(t, "ada", online)
		require.NoError(t, h.keys.Revoke(t.Context(), models.System(), "ada"))
		require.Empty(t, g.over())
	})
}

// signedBarrier returns what came before the answer to a question that is asked now.
func (g *talker) signedBarrier(t *testing.T, number int) (before []string) {
	t.Helper()
	g.say(sign(t, fmt.Sprintf("M%d|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W1;status=all", number), theKey, "0b0b"))
	for {
		said := g.hearSigned()
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
	plainRule(t, "stands for the line with its token, which goes no further", transport.Options{Logger: logger}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		h.signs(t, "ada", true)
		g, _ := h.dialLine(t)
		g.say(sign(t, join+";token="+token, theKey, "beef"))
		require.Contains(t, g.hearSigned(), "registered;id=W1")
		g.say(sign(t, fmt.Sprintf(heartbeat, 2), "a wrong key that is long", "beef"))
		require.Contains(t, g.hear(), wire.ReasonSignature)
		require.NotContains(t, strings.Join(h.speech.lines, "\n"), token)
		mu.Lock()
		defer mu.Unlock()
		for _, secret := range []string{token, theKey, "auth=", ":beef:"} {
			require.NotContains(t, log.String(), secret)
		}
	})
	plainRule(t, "that is wrong or missing does not end the line that there is", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		h.signs(t, "ada", true)
		g := h.enter(t, transport.WebSocket, token)
		g.say(sign(t, join, theKey, "00aa"))
		require.Contains(t, g.hearSigned(), "registered;id=W1")
		before := h.worker(t, "ada", online).ConnectionID
		next := strings.Replace(join, "M1", "M2", 1)
		for first, reason := range map[string]string{
			next:                             wire.ReasonUnsigned,
			sign(t, next, "another", "00aa"): wire.ReasonSignature,
			sign(t, join, theKey, "00aa"):    wire.ReasonReplay,
		} {
			for _, way := range []string{transport.WebSocket, transport.TCP} {
				if way == transport.TCP && first == sign(t, join, theKey, "00aa") {
					continue // said with a token it would be another line
				}
				other := h.enter(t, way, token)
				said := first
				if way == transport.TCP && reason == wire.ReasonUnsigned {
					said += ";token=" + token
				}
				other.say(said)
				require.Contains(t, strings.Join(other.over(), ""), "|F|E90|0|S0|-|reason="+reason+";", "%s %s", way, first)
			}
		}
		require.Equal(t, before, h.CachedWorker("ada").ConnectionID)
		require.Empty(t, g.signedBarrier(t, 3), "and it goes on")

		g = h.enter(t, transport.WebSocket, token)
		g.say(sign(t, next, theKey, "00ab"))
		require.Contains(t, g.hearSigned(), "registered;id=W1")
		h.worker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID != before })
	})
	plainRule(t, "says who somebody is that has no token", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		h.first(t, "ada")
		h.signs(t, "ada", false)
		g, _ := h.dialLine(t)
		g.say(sign(t, join+";name=eve", theKey, "00aa"))
		require.Contains(t, g.hear(), "registered;id=W1")
		require.Empty(t, h.names, "nobody is registered")
		require.Contains(t, h.sentAway(t, sign(t, join+";name=eve", "another", "00aa")), wire.ReasonSignature)
		require.Empty(t, h.names, "not by a line that is refused either")
	})
	plainRule(t, "does not allow to ask for work", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		h.first(t, "ada")
		token := h.token(t, "ada", models.ScopeMessagesSend).Secret
		h.signs(t, "ada", false)
		const ask = "M2|W1>O1|R|-|-|-|-|0|-|-|call=web_search"
		g, _ := h.dialLine(t)
		g.say(sign(t, join, theKey, "00aa"))
		require.Contains(t, g.hear(), "registered;id=W1")
		g.say(ask)
		require.Contains(t, g.hear(), "|F|E90|0|-|-|reason=scope;")
		g, _ = h.dialLine(t)
		g.say(join + ";token=" + token)
		require.Contains(t, g.hear(), "registered;id=W1")
		g.say(ask)
		require.NotContains(t, g.hear(), "reason=scope", "as the token does")
	})
	itself := transport.ListenerOptions{Enrolled: func(a models.Agent) bool { return a.ID == "ada" }}
	plainRule(t, "allows what one that registered itself may without", transport.Options{}, itself, func(t *testing.T, h *inn) {
		h.first(t, "ada")
		h.signs(t, "ada", false)
		for i, first := range []string{join + ";name=ada", sign(t, join, theKey, "00aa")} {
			g, _ := h.dialLine(t)
			g.say(first)
			require.Contains(t, g.hear(), "registered;id=W1")
			g.say(fmt.Sprintf("M%d|W1>O1|R|-|-|-|-|0|-|-|call=web_search", i+2))
			require.NotContains(t, g.hear(), "reason=scope")
		}
	})
	plainRule(t, "is not looked at after too many that were wrong from there", transport.Options{MaxFailures: 3}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		h.signs(t, "ada", false)
		h.come(t, transport.TCP, token, "")
		for i := range 3 {
			require.Contains(t, h.sentAway(t, sign(t, join, "another", fmt.Sprintf("%04d", i))), wire.ReasonSignature)
		}
		require.Contains(t, h.sentAway(t, sign(t, join, "another", "0009")), "|F|E31|")
		require.Contains(t, h.sentAway(t, sign(t, join, theKey, "00aa")), "|F|E31|", "also not the right one")
		h.agent(t, "bob")
		h.signs(t, "bob", false)
		require.Contains(t, h.sentAway(t, sign(t, strings.Replace(join, "W1", "W2", 1), theKey, "00aa")), "|F|E31|", "nor that of another agent")
		h.metricIs(t, 3, "comet_link_authentication_failures_total")
		h.come(t, transport.TCP, token, "") // which says who it is without one
	})
	plainRule(t, "is not looked at after too many that were wrong for the agent", transport.Options{MaxFailures: 3}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		h.first(t, "ada")
		h.signs(t, "ada", false)
		for i := range 3 {
			from := fmt.Sprintf("127.0.0.%d", i+2)
			require.Contains(t, h.sentFrom(t, from, sign(t, join, "another", fmt.Sprintf("%04d", i))), wire.ReasonSignature, from)
		}
		require.Contains(t, h.sentFrom(t, "127.0.0.9", sign(t, join, theKey, "00aa")), "|F|E31|")
	})
	plainRule(t, "is missed in the first line of whoever has to sign", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		h.signs(t, "ada", true)
		g, _ := h.dialLine(t)
		g.say(sign(t, join+";token="+token, theKey, "00aa"))
		require.Contains(t, g.hearSigned(), "registered")
		require.Contains(t, h.sentAway(t, join+";token="+token), wire.ReasonUnsigned)
		require.Contains(t, h.sentAway(t, join+";name=ada"), wire.ReasonUnsigned)
		require.Empty(t, g.signedBarrier(t, 2), "its line goes on")
	})
	plainRule(t, "that is wrong counts over HTTP too", transport.Options{MaxFailures: 3}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		h.signs(t, "ada", true)
		var lines []string
		for i := range 5 {
			lines = append(lines, sign(t, fmt.Sprintf(heartbeat, i+1), "another", "00aa"))
		}
		got := h.do(t, "POST", "/api/v5/messages", token, strings.Join(lines, "\n"), "Content-Type", "text/plain")
		require.Equal(t, 401, got.StatusCode)
		said := strings.Split(strings.TrimSpace(got.body), "\n")
		require.Len(t, said, 5)
		for i, want := range []string{"E90", "E90", "E90", "E31", "E31"} {
			require.Contains(t, said[i], "|F|"+want+"|")
		}
		h.metricIs(t, 3, "comet_link_authentication_failures_total")
		require.Equal(t, 429, h.do(t, "POST", "/api/v5/messages", token, lines[0], "Content-Type", "text/plain").StatusCode,
			"and its token is not known any more")
	})
	plainRule(t, "that is wrong too often ends a WebSocket", transport.Options{MaxFailures: 2}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		h.signs(t, "ada", true)
		g := h.enter(t, transport.WebSocket, token)
		g.say(sign(t, join, theKey, "00aa"))
		require.Contains(t, g.hearSigned(), "registered")
		g.say(sign(t, fmt.Sprintf(heartbeat, 2), "another", "00aa"))
		require.Contains(t, g.hear(), wire.ReasonSignature)
		g.say(sign(t, fmt.Sprintf(heartbeat, 3), "another", "00aa"))
		require.Contains(t, strings.Join(g.over(), "\n"), wire.ReasonSignature)
	})
}
