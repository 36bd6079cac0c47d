package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/transport"
	"comet/models"
	"comet/store"
)

const join = "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5"

// TestAStrangerOverTCP: what becomes of a connection before it is an agent's.
func TestAStrangerOverTCP(t *testing.T) {
	t.Parallel()
	quick := transport.ListenerOptions{Greeting: 30 * time.Millisecond}
	plainRule(t, "is sent away where his first line is no J", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		for _, first := range []string{askRoll, "M1|User>O1|R|-|-|-|-|0|-|-|call=web_search", "M1|User>O1|J|T0|-|-|-|0|S0|-|-"} {
			g, _ := h.dialLine(t)
			g.say(first)
			said := g.over()
			require.Len(t, said, 1)
			require.Contains(t, said[0], "|F|E13|", first)
			require.Contains(t, said[0], "first line must be a worker's J")
		}
		g, _ := h.dialLine(t)
		g.say("GET / HTTP/1.1\r")
		said := g.over()
		require.Len(t, said, 1)
		require.Equal(t, `O1>User|E|-|-|F|E10|0|-|-|desc=invalid message format;details=the line has 1 segment, not 11, or 8 in V4`, unnumbered(said[0]))
		h.metricIs(t, 0, "comet_link_lines", transport.TCP)
		require.Empty(t, h.names, "nobody is registered")
	})
	plainRule(t, "is sent away without a word where he says nothing", transport.Options{}, quick, func(t *testing.T, h *inn) {
		g, _ := h.dialLine(t)
		require.Empty(t, g.over())
	})
	plainRule(t, "gains no time by empty lines", transport.Options{}, quick, func(t *testing.T, h *inn) {
		g, _ := h.dialLine(t)
		var err error
		for err == nil {
			err = g.send("")
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	})
	plainRule(t, "is not let in beside too many others", transport.Options{}, transport.ListenerOptions{MaxStrangers: 1}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		one, _ := h.dialLine(t)
		two, _ := h.dialLine(t)
		require.Empty(t, two.over())
		one.say(join + ";token=" + token)
		require.Contains(t, one.hear(), "registered")
		require.Eventually(t, func() bool { // one is none any more
			three, _ := h.dialLine(t)
			_ = three.send("nonsense")
			text, err := three.next()
			return err == nil && strings.Contains(text, "|E10|")
		}, time.Minute, time.Millisecond)
	})
	plainRule(t, "is told where there are as many lines as there may be", transport.Options{MaxLines: 1}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		h.come(t, transport.TCP, h.first(t, "ada"), "")
		g, _ := h.dialLine(t)
		g.say(join + ";token=" + h.agent(t, "bob"))
		said := g.over()
		require.Len(t, said, 1)
		require.Contains(t, said[0], "|F|E30|")
	})
	plainRule(t, "is let go when the listener stops", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		g, _ := h.dialLine(t)
		require.NoError(t, h.listener.Stop(t.Context()))
		require.Empty(t, g.over())
	})
}

// TestATokenOverTCP (decisions: “Who is speaking”).
func TestATokenOverTCP(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	plainRule(t, "names the agent, and goes no further", transport.Options{Logger: logger}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		g, _ := h.dialLine(t)
		g.say("M1|W1>O1|J|T0|-|-|-|0|S0|-|token=" + token + ";caps=custom:ada;concurrency=2")
		said := g.hear()
		require.Contains(t, said, "registered;id=W1")
		require.True(t, h.speech.heard("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=custom:ada;concurrency=2"), "%q", h.speech.lines)
		w := h.worker(t, "ada", online)
		require.Equal(t, []any{transport.TCP, 2}, []any{w.Transport, w.Concurrency})
		require.NotContains(t, said, token)
		require.NotContains(t, strings.Join(h.speech.lines, "\n"), token)
		mu.Lock()
		defer mu.Unlock()
		require.NotContains(t, log.String(), token)
		require.Empty(t, h.names, "nobody is registered")
	})
	plainRule(t, "that is wrong is refused, counted, logged, and not echoed", transport.Options{MaxFailures: 3, Logger: logger}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		known, fresh := h.first(t, "ada"), h.agent(t, "bob")
		h.come(t, transport.TCP, known, "")
		for i := range 3 {
			require.Equal(t, refusedToken, h.turnedAway(t, fmt.Sprintf("sesame-%d", i)))
			h.metricIs(t, i+1, "comet_link_authentication_failures_total")
		}
		mu.Lock()
		require.Contains(t, log.String(), "somebody was turned away")
		require.NotContains(t, log.String(), "sesame-")
		mu.Unlock()
		require.Equal(t, refusedToken, h.turnedAway(t, fresh), "this address has tried too many")
		h.metricIs(t, 3, "comet_link_authentication_failures_total")
		h.come(t, transport.TCP, known, "") // which was accepted before
		require.Equal(t, 429, h.do(t, "GET", "/api/agent/inbox", "sesame", "").StatusCode, "over HTTP too")
		h.metricIs(t, 3, "comet_link_authentication_failures_total")
	})
	plainRule(t, "that is bound to no agent is refused", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		require.Equal(t, refusedToken, h.turnedAway(t, h.token(t, "", models.ScopeAdmin).Secret))
	})
	plainRule(t, "of an agent that is deactivated is refused", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		h.deactivate(t, "ada")
		require.Equal(t, refusedToken, h.turnedAway(t, token))
	})
	plainRule(t, "that is cut off with the end of DATA registers nobody", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		g, _ := h.dialLine(t)
		g.say("M1|W1>O1|J|T0|-|-|-|0|S0|-|desc=" + strings.Repeat("x", 200) + ";token=" + token)
		require.Contains(t, strings.Join(g.over(), "\n"), "|F|E10|0|S0|-|desc=")
		require.Empty(t, h.names)
		g, _ = h.dialLine(t)
		g.say("M1|W1>O1|J|T0|-|-|-|0|S0|-|token=" + token + ";desc=" + strings.Repeat("x", 200))
		require.Contains(t, g.hear(), "registered;id=W1", "one that stands before that is found")
	})
	plainRule(t, "is not shown in what is said of a J that is wrong", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		for _, line := range []string{
			"M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=a>b;token=" + token,
			"M1|W1>O1|J|T0|-|-|-|0|S0|token=" + token,
			"M1|W1>O1|J|T0|-|-|-|0|token=" + token + "|-|-",
			"M1|W1>O1|J|T0|-|-|-|token=" + token + "|S0|-|-",
			"token=" + token,
			"M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V3;token=" + token,
			"M1|W1>O1|J|T0|-|-|-|token=" + token,
			"M1|W1>O1|J|T0|-|-|-|0|S0|-|token=" + token + strings.Repeat("x", 70_000),
		} {
			g, _ := h.dialLine(t)
			g.say(line)
			said := g.hear()
			require.Contains(t, said, "|E|")
			require.NotContains(t, said, token[:8])
			g.drop()
		}
	})
}

// refusedToken is all that is said of one.
const refusedToken = "O1>W1|E|T0|-|F|E90|0|S0|-|reason=token;desc=the token is not accepted"

// turnedAway says J with a token and returns all that is answered.
func (h *inn) turnedAway(t *testing.T, token string) string {
	t.Helper()
	g, _ := h.dialLine(t)
	g.say(join + ";token=" + token)
	all := strings.Join(g.over(), "\n")
	require.NotContains(t, all, token)
	return unnumbered(all)
}

// locked is a buffer for several.
type locked struct {
	mu  *sync.Mutex
	buf *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// TestAnAgentWithoutAToken registers itself.
func TestAnAgentWithoutAToken(t *testing.T) {
	t.Parallel()
	plainRule(t, "is registered under the name it proposes, and is on the line", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		h.first(t, "ada")
		for range 2 {
			g, _ := h.dialLine(t)
			g.say(join + ";name=ada")
			require.Contains(t, g.hear(), "registered;id=W1")
			require.Equal(t, "ada", <-h.names)
			h.worker(t, "ada", online)
			h.submit(t, "ada")
			g.about("R")
			g.drop()
			h.worker(t, "ada", offline)
		}
	})
	refusing := transport.ListenerOptions{Enroll: func(context.Context, string) (string, error) {
		return "", errs.New(errs.InvalidRequest, "nobody of that name is wanted")
	}}
	plainRule(t, "is told why where it cannot be", transport.Options{}, refusing, func(t *testing.T, h *inn) {
		g, _ := h.dialLine(t)
		g.say(join + ";name=ada")
		require.Equal(t, "O1>W1|E|T0|-|F|E10|0|S0|-|desc=nobody of that name is wanted", unnumbered(strings.Join(g.over(), "\n")))
	})
	plainRule(t, "is off the line once it is deactivated", transport.Options{Heartbeat: beat}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		h.first(t, "ada")
		g, _ := h.dialLine(t)
		g.say(join + ";name=ada")
		require.Contains(t, g.hear(), "registered")
		h.worker(t, "ada", online) // who is not yet is told why he will not be
		h.deactivate(t, "ada")
		require.Empty(t, g.over())
	})
	rule(t, "is refused where nobody registers it", nil, func(t *testing.T, h *house) {
		s := transport.NewListener(h.links, "127.0.0.1:0", nil)
		require.EqualError(t, s.Start(t.Context()), "no plain dialect is spoken")
		require.NoError(t, s.Stop(t.Context()), "it was never started")
	})
}

// TestALineOverTCP: what is a line, and how many of them are taken.
func TestALineOverTCP(t *testing.T) {
	t.Parallel()
	plainRule(t, "may be empty, which is passed over, and end in CR LF", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		g, _ := h.dialLine(t)
		g.say("\n\r\n\n" + join + ";token=" + h.first(t, "ada") + "\r\n\n\r\n" + askRoll + "\r\n\n")
		require.Contains(t, g.hear(), "registered")
		require.Contains(t, g.hear(), "agents=W1;count=1")
		h.metricIs(t, 2, "comet_link_messages_total", "in", transport.TCP)
	})
	plainRule(t, "of more than 64 KiB is refused, and the next one is taken", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		g := h.come(t, transport.TCP, h.first(t, "ada"), "")
		head := "M2|W1>O1|U|T1|P1|R|-|0|S1|-|desc="
		most := head + strings.Repeat("x", 64<<10-len(head))
		g.say(most)
		require.Contains(t, g.hear(), "|F|E42|", "this one is not too long")
		for _, more := range []int{1, 2, 100, 64 << 10, 1 << 20} {
			g.say(most + strings.Repeat("y", more))
			require.Contains(t, g.hear(), "details=the line is longer than 65536 bytes")
			require.Empty(t, g.barrier())
		}
		g.say(head + strings.Repeat("\r", 1<<17) + "more")
		require.Contains(t, g.hear(), "details=the line is longer than 65536 bytes", "whatever its beginning ends with")
	})
	plainRule(t, "may be the last, without a line break", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		g, conn := h.dialLine(t)
		g.say(join + ";token=" + token)
		require.Contains(t, g.hear(), "registered")
		_, err := conn.Write([]byte(askRoll))
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		said := g.over()
		require.Len(t, said, 1)
		require.Contains(t, said[0], "agents=W1;count=1")
		h.worker(t, "ada", offline)
	})
	plainRule(t, "that is the last is answered, also one about a task", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		g, conn := h.dialLine(t)
		g.say(join + ";token=" + h.first(t, "ada"))
		require.Contains(t, g.hear(), "registered")
		h.worker(t, "ada", online)
		h.submit(t, "ada")
		tid, session := g.about("R")
		_, err := fmt.Fprintf(conn, "M2|W1>O1|S|%s|-|D|-|0|%s|-|n=1", tid, session)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		said := g.over()
		require.Len(t, said, 1)
		require.Contains(t, said[0], "|A|"+tid+"|")
	})
	plainRule(t, "comes no faster than the pace, and none is lost", transport.Options{}, transport.ListenerOptions{Pace: 50}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		before := time.Now()
		g := h.come(t, transport.TCP, token, "")
		const n = 60
		g.say(strings.TrimSuffix(strings.Repeat(askRoll+"\n", n), "\n"))
		for range n {
			require.Contains(t, g.hear(), "count=1")
		}
		require.Greater(t, time.Since(before), 150*time.Millisecond, "the 11 that are over the pace take a fiftieth of a second each")
	})
	plainRule(t, "has to come now and then", transport.Options{}, transport.ListenerOptions{Idle: 50 * time.Millisecond}, func(t *testing.T, h *inn) {
		g, _ := h.dialLine(t)
		g.say(join + ";token=" + h.first(t, "ada"))
		said := g.over()
		require.Len(t, said, 1)
		require.Contains(t, said[0], "registered")
		h.worker(t, "ada", offline)
		h.metricIs(t, 0, "comet_link_lines", transport.TCP)
	})
	plainRule(t, "need not come for the connection to count as alive", transport.Options{Heartbeat: beat}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		g := h.come(t, transport.TCP, h.first(t, "ada"), "")
		h.beats(t, 5, func() {})
		require.True(t, online(h.CachedWorker("ada")))
		require.Empty(t, g.barrier())
	})
}

// TestAListener begins and ends.
func TestAListener(t *testing.T) {
	t.Parallel()
	plainRule(t, "frees its port, and leaves the lines that there are", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		g := h.come(t, transport.TCP, h.first(t, "ada"), "")
		require.NoError(t, h.listener.Stop(t.Context()))
		require.NoError(t, h.listener.Stop(t.Context()), "twice is fine")
		require.Empty(t, g.barrier())
		next := transport.NewListener(h.links, h.address, nil)
		require.NoError(t, next.Start(t.Context()))
		defer func() { require.NoError(t, next.Stop(context.Background())) }()
		again, _ := h.dialLine(t)
		again.say(join)
		require.Contains(t, strings.Join(again.over(), "\n"), "|E90|", "without a token, where nobody registers agents")
		require.NoError(t, h.links.Stop(t.Context()))
		require.Empty(t, g.over())
	})
	plainRule(t, "says which address is taken, and what to do", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		err := transport.NewListener(h.links, h.address, nil).Start(t.Context())
		require.ErrorContains(t, err, "listen on "+h.address)
		require.ErrorContains(t, err, "--v5-listen")
	})
	plainRule(t, "takes hundreds at once, and forgets none", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		const n = 200
		now, parent, sphere, budget := h.db.Now(), "orch-my-team", 8, int64(50_000)
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			var all []error
			for i := range n {
				id := fmt.Sprintf("agent-%d", i)
				all = append(all, tx.InsertAgent(models.Agent{
					ID: id, Name: id, Level: 2, SphereID: &sphere, FrequencyHz: 555, ParentID: &parent, TokenBudget: &budget,
					IsActive: true, Version: 1, CreatedAt: now, UpdatedAt: now,
				}))
			}
			return errors.Join(all...)
		}))
		var mu sync.Mutex
		numbers := map[string]bool{}
		var callers sync.WaitGroup
		ready, leave := make(chan error, n), make(chan struct{})
		for i := range n {
			g, _ := h.dialLine(t)
			callers.Go(func() {
				err := g.send(fmt.Sprintf("%s;name=agent-%d", join, i))
				if err == nil {
					var text string
					text, err = g.next()
					mu.Lock()
					numbers[text[strings.Index(text, "id="):]] = true
					mu.Unlock()
				}
				ready <- err
				<-leave
				if i%2 == 0 { // the others are ended
					g.drop()
				}
			})
		}
		for range n {
			require.NoError(t, <-ready)
		}
		require.Len(t, numbers, n, "each has a number of its own")
		h.metricIs(t, n, "comet_link_lines", transport.TCP)
		close(leave)
		callers.Wait()
		h.metricIs(t, n/2, "comet_link_lines", transport.TCP)
		require.NoError(t, h.links.Stop(t.Context()))
		require.Zero(t, h.metric(t, "comet_link_lines", transport.TCP))
	})
}
