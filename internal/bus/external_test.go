package bus_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/bus/bustest"
	"comet/internal/errs"
)

// record is a log that may be read while it is written.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

func (r *record) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestTwoBusesOnOneServerHearEachOther(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	one, two := start(t, &bus.Options{URL: server.URL()}), start(t, &bus.Options{URL: server.URL()})
	atOne, atTwo := hear(t, one, bus.WakeDispatch()), hear(t, two, bus.WakeDispatch())
	require.NoError(t, one.Publish(bus.WakeDispatch(), nil))
	next(t, atOne)
	next(t, atTwo)

	_, err := two.QueueSubscribe("ask", "q", func(m bus.Message) { require.NoError(t, m.Respond([]byte("two"))) })
	require.NoError(t, err)
	flush(t, two)
	got, err := one.Request(t.Context(), "ask", nil)
	require.NoError(t, err)
	require.Equal(t, "two", string(got.Data))

	// What one has published before it stops reaches the other.
	for i := range 1000 {
		require.NoError(t, one.Publish(bus.WakeDispatch(), []byte(strconv.Itoa(i))))
	}
	stop(t, one)
	for i := range 1000 {
		require.Equal(t, strconv.Itoa(i), string(next(t, atTwo).Data))
	}
}

// A bus whose own line was never down may miss what a bus that was cut off could not send.
func TestTheOthersHearOfAGap(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	one, two := start(t, &bus.Options{URL: server.URL()}), start(t, &bus.Options{URL: server.URL()})
	flush(t, two)
	gaps := listen(two)
	require.NoError(t, one.Break())
	require.Equal(t, bus.Gap{Reason: bus.OthersReconnected}, next(t, gaps))
}

func TestAServerThatIsNotThereYetStopsNobody(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	server.Kill()
	var log record
	b := start(t, &bus.Options{URL: server.URL(), Logger: log.logger()})
	require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable))
	require.InDelta(t, 0, metric(t, b, "comet_bus_connected"), 0)
	gaps := listen(b)
	heard := make(chan bus.Message, 10)
	_, err := b.Subscribe("early", func(m bus.Message) { heard <- m })
	require.NoError(t, err)
	require.NoError(t, b.Publish("early", []byte("kept")))

	server.Restart(t)
	require.Equal(t, bus.Gap{Reason: bus.Reconnected}, next(t, gaps))
	require.Equal(t, "kept", string(next(t, heard).Data))
	require.NoError(t, b.Check(t.Context()))
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("NATS is away")), "%s", &log)
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("NATS is back")), "%s", &log)
}

func TestPublishingWhileTheServerIsAwayDoesNotWait(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	b := start(t, &bus.Options{URL: server.URL(), PublishBuffer: 1 << 20})
	heard := hear(t, b, "away")
	server.Kill()
	require.Eventually(t, func() bool { return b.Check(t.Context()) != nil }, long, 1e6)

	// More than is kept: the rest is refused at once, and the memory stays bounded.
	kept, refused := 0, 0
	for i := range 3000 {
		switch err := b.Publish("away", append([]byte(strconv.Itoa(i)+" "), make([]byte, 1<<10)...)); {
		case err == nil:
			kept++
		default:
			require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
			refused++
		}
	}
	require.Greater(t, kept, 900)
	require.Greater(t, refused, 1900)
	require.InDelta(t, refused, metric(t, b, "comet_bus_publish_failures_total"), 0)

	server.Restart(t)
	for i := range kept {
		text, _, _ := bytes.Cut(next(t, heard).Data, []byte(" "))
		require.Equal(t, strconv.Itoa(i), string(text))
	}
	require.NoError(t, b.Publish("away", []byte("back")))
	require.Equal(t, "back", string(next(t, heard).Data))
}

func TestABusThatIsAwayStops(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	b := start(t, &bus.Options{URL: server.URL()})
	server.Kill()
	require.Eventually(t, func() bool { return b.Check(t.Context()) != nil }, long, 1e6)
	stop(t, b)
}

func TestRequestsEndWhenTheServerDoes(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	b := start(t, &bus.Options{URL: server.URL()})
	asked := hear(t, b, "ask")
	ended := make(chan error, 1)
	go func() {
		_, err := b.Request(t.Context(), "ask", nil)
		ended <- err
	}()
	next(t, asked)
	server.Kill()
	err := next(t, ended)
	require.True(t, errs.Is(err, errs.Unavailable) || errs.Is(err, errs.Timeout), "%v", err)
}

// Publishers that go on through three ends of the server: none of them waits or fails for
// good, and after the last gap everything arrives.
func TestTheServerMayEndUnderLoad(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	b := start(t, &bus.Options{URL: server.URL()})
	other := start(t, &bus.Options{URL: server.URL()})
	gaps := listen(other)
	heard := make(chan string, 1)
	_, err := other.Subscribe("load.*", func(m bus.Message) {
		if m.Subject != "load.end" {
			return
		}
		select {
		case heard <- string(m.Data):
		default: // it has come before
		}
	})
	require.NoError(t, err)
	done := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = b.Publish("load.go", []byte("x"))
				}
			}
		})
	}
	for range 3 {
		server.Kill()
		server.Restart(t)
		for next(t, gaps).Reason != bus.Reconnected { // its queue may overflow meanwhile
			continue
		}
	}
	close(done)
	all.Wait()
	answers(t, b)
	flush(t, b)
	require.Eventually(t, func() bool {
		require.NoError(t, b.Publish("load.end", []byte("end")))
		select {
		case m := <-heard:
			return m == "end"
		default:
			return false
		}
	}, long, 1e6)
}

func TestALowerLimitOfTheServerIsKept(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{MaxPayload: 1000})
	b := start(t, &bus.Options{URL: server.URL()})
	err := b.Publish("large", make([]byte, 1001))
	require.True(t, errs.Is(err, errs.BodyTooLarge), "%v", err)
	require.ErrorContains(t, err, "1000 bytes")
	require.NoError(t, b.Publish("large", make([]byte, 1000)))
	require.NoError(t, b.Check(t.Context()))
}

func TestTheSecondServerTakesOver(t *testing.T) {
	t.Parallel()
	one, two := bustest.Start(t, bustest.Settings{}), bustest.Start(t, bustest.Settings{})
	one.Kill()
	b := start(t, &bus.Options{URL: one.URL() + ", " + two.URL()})
	require.NoError(t, b.Check(t.Context()))
	two.Kill()
	one.Restart(t)
	require.Eventually(t, func() bool { return b.Check(t.Context()) == nil }, long, 5e6)
}

// quiet is a log at the level that people run with.
func quiet(r *record) *slog.Logger { return slog.New(slog.NewTextHandler(r, nil)) }
