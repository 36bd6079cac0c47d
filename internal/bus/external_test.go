package bus_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/bus"
	"comet/internal/bus/bustest"
	"comet/internal/errs"
	"comet/internal/testkit"
)

// logBuffer is a log that may be read while it is written to.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestTwoBusesOnOneServerExchangeMessages(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	one, two := start(t, &bus.Options{URL: server.URL()}), start(t, &bus.Options{URL: server.URL()})
	receivedByOne, receivedByTwo := receive(t, one, string(bus.WakeDispatches)), receive(t, two, string(bus.WakeDispatches))
	require.NoError(t, one.Publish(string(bus.WakeDispatches), nil))
	testkit.Receive(t, receivedByOne)
	testkit.Receive(t, receivedByTwo)

	_, err := two.QueueSubscribe("ask", "q", func(m bus.Message) { require.NoError(t, m.Respond([]byte("two"))) })
	require.NoError(t, err)
	flush(t, two)
	got, err := one.Request(t.Context(), "ask", nil)
	require.NoError(t, err)
	require.Equal(t, "two", string(got.Data))

	// Messages that were published before Stop are delivered.
	for i := range 1000 {
		require.NoError(t, one.Publish(string(bus.WakeDispatches), []byte(strconv.Itoa(i))))
	}
	stop(t, one)
	for i := range 1000 {
		require.Equal(t, strconv.Itoa(i), string(testkit.Receive(t, receivedByTwo).Data))
	}
}

// TestAReconnectionIsAGapForOtherReplicas checks that a bus is notified when another one was
// disconnected and may have lost messages.
func TestAReconnectionIsAGapForOtherReplicas(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	one, two := start(t, &bus.Options{URL: server.URL()}), start(t, &bus.Options{URL: server.URL()})
	flush(t, two)
	gaps := gapsOf(two)
	require.NoError(t, one.Break())
	testkit.Receive(t, gaps)
}

func TestABusStartsBeforeItsServer(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	server.Kill()
	var log logBuffer
	b := start(t, &bus.Options{URL: server.URL(), Logger: log.logger()})
	require.True(t, errs.Is(b.Check(t.Context()), errs.Unavailable))
	require.InDelta(t, 0, metric(t, b, "comet_bus_connected"), 0)
	gaps := gapsOf(b)
	received := make(chan bus.Message, 10)
	_, err := b.Subscribe("early", func(m bus.Message) { received <- m })
	require.NoError(t, err)
	require.NoError(t, b.Publish("early", []byte("buffered")))

	server.Restart(t)
	testkit.Receive(t, gaps)
	require.Equal(t, "buffered", string(testkit.Receive(t, received).Data))
	require.NoError(t, b.Check(t.Context()))
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("NATS is unreachable")), "%s", &log)
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("NATS is reachable again")), "%s", &log)
}

func TestPublishWhileTheServerIsUnreachableDoesNotWait(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	b := start(t, &bus.Options{URL: server.URL(), PublishBuffer: 1 << 20})
	received := receive(t, b, "away")
	server.Kill()
	require.Eventually(t, func() bool { return b.Check(t.Context()) != nil }, timeout, 1e6)

	// Messages over PublishBuffer are rejected at once.
	buffered, rejected := 0, 0
	for i := range 3000 {
		switch err := b.Publish("away", append([]byte(strconv.Itoa(i)+" "), make([]byte, 1<<10)...)); {
		case err == nil:
			buffered++
		default:
			require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
			rejected++
		}
	}
	require.Greater(t, buffered, 900)
	require.Greater(t, rejected, 1900)
	require.InDelta(t, rejected, metric(t, b, "comet_bus_publish_failures_total"), 0)

	server.Restart(t)
	for i := range buffered {
		text, _, _ := bytes.Cut(testkit.Receive(t, received).Data, []byte(" "))
		require.Equal(t, strconv.Itoa(i), string(text))
	}
	require.NoError(t, b.Publish("away", []byte("back")))
	require.Equal(t, "back", string(testkit.Receive(t, received).Data))
}

func TestStopWhileTheServerIsUnreachable(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	b := start(t, &bus.Options{URL: server.URL()})
	server.Kill()
	require.Eventually(t, func() bool { return b.Check(t.Context()) != nil }, timeout, 1e6)
	stop(t, b)
}

// TestPublishersSurviveRestartsOfTheServer checks that publishers do not block during three restarts,
// and that messages arrive after the last one.
func TestPublishersSurviveRestartsOfTheServer(t *testing.T) {
	t.Parallel()
	server := bustest.Start(t, bustest.Settings{})
	b := start(t, &bus.Options{URL: server.URL()})
	other := start(t, &bus.Options{URL: server.URL()})
	received := make(chan string, 1)
	_, err := other.Subscribe("load.*", func(m bus.Message) {
		if m.Subject != "load.end" {
			return
		}
		select {
		case received <- string(m.Data):
		default: // it was received before
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
	for n := range 3 {
		server.Kill()
		server.Restart(t)
		require.Eventually(t, func() bool { return metric(t, other, "comet_bus_reconnects_total") > float64(n) }, timeout, time.Millisecond)
	}
	close(done)
	all.Wait()
	waitConnected(t, b)
	flush(t, b)
	require.Eventually(t, func() bool {
		require.NoError(t, b.Publish("load.end", []byte("end")))
		select {
		case m := <-received:
			return m == "end"
		default:
			return false
		}
	}, timeout, 1e6)
}

func TestALowerSizeLimitOfTheServerApplies(t *testing.T) {
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
	require.Eventually(t, func() bool { return b.Check(t.Context()) == nil }, timeout, 5e6)
}

// quiet is a log at the level that people run with.
func infoLogger(b *logBuffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
